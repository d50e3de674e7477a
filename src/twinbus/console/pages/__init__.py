"""The pages of the console, a module each: what it asks for, and what it shows of the answers.

What all of them share is in `layout` and `shapes`.
"""
