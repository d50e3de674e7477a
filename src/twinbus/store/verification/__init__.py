"""Whether what a namespace holds is whole: checks that read stores and catalog at one instant and change nothing.

Which files or databases these are, and who may be using them, is the broker's business.
"""
