"""How well methods find the evidence of questions."""
