"""Runs compositions: the only room that imports compose, and with it torch. Loaded when used."""
