"""Program to Kernels: tensor expressions composed by index, fused, laid into loop nests."""
