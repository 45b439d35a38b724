"""Programs to look at. Nothing is compiled by it, and it is loaded when it is asked for.

columns     listings with columns: operations, bytes, lifetimes, residuals
diff        what a stage of the compiler changed
drawing     equations as boxes, values as curves: SVG, HTML
python      NumPy source of a Program; `functions`, that of the references it calls
"""
