from toolfold import search_tools

hits = search_tools("shipping label of an order", detail="with_description", limit=5)
label = next(h for h in hits if h.name == "shipping_label")
print(label.server)
print(label.description)
print(label.import_)
