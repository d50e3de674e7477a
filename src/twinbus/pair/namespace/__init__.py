"""A namespace as the pair sees it, over our own client or over the official SDK.

What is sent where is decided by `route`.
"""
