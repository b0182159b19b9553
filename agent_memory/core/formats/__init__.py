"""Formats of provider-native items: how they show in a chat, and how a chat shows in them."""
