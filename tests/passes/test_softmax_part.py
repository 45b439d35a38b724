"""The part of a program that recognisers look at: from ends of softmaxes back to the products."""

import numpy as np

import fxad
import fxad.numpy as jnp
from fxad.passes.softmax_part import around_softmax

A = np.ones((3, 3), np.float32)


def part(function, *args):
    return [e.op.name for e in around_softmax(fxad.jit(function).lower(*args).traced).eqns]


def test_it_goes_back_to_the_product_of_the_exponential():
    def attention(a):
        before = jnp.tanh(jnp.sin(a) @ a)
        return jnp.cos(jnp.exp(before @ a) @ jnp.sqrt(a))

    assert part(attention, A) == ["dot", "exp", "dot"]
    around = around_softmax(fxad.jit(attention).lower(A).traced)
    assert [v.type.shape for v in around.inputs] == [(3, 3)] * 3
    assert len(around.outputs) == 1


def test_several_products_are_followed_to_those_before():
    """They may be one that is recomputed from equal operands."""

    def twice(a):
        def scores():
            return jnp.tanh(jnp.sin(a) @ a) @ a

        return jnp.exp(scores()) / jnp.sum(jnp.exp(scores())) @ a

    ours = ["tanh", "dot", "exp", "tanh", "dot", "exp", "sum", "broadcast", "div", "dot"]
    assert part(twice, A) == ours


def test_attention_with_scores_computed_twice_is_found_in_a_larger_program():
    def attention(q, k, v):
        for _ in range(50):
            q = jnp.sin(q)
        e = jnp.exp(q @ k.T)
        return e / jnp.sum(jnp.exp(q @ k.T), axis=-1, keepdims=True) @ v

    program = fxad.jit(attention).lower(A, A, A).traced
    assert "flash_attention" in [e.op.name for e in program.eqns]


def test_a_number_made_of_exponentials_is_an_end():
    def loss(a):
        return jnp.sum(jnp.log(jnp.sum(jnp.exp(a @ a), axis=-1)))

    assert part(loss, A) == ["dot", "exp", "sum", "log", "sum"]


def test_there_is_none_without_an_exponential_of_a_product():
    assert part(lambda a: jnp.exp(a) @ a, A) == []
    assert part(lambda a: jnp.tanh(a @ a) @ a, A) == []
    assert part(lambda a: jnp.sin(jnp.exp(a @ a)), A) == []
