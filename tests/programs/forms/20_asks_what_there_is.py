from servers import shop

for name in ("count_orders", "count_customers"):
    if hasattr(shop, name):
        print(name, await getattr(shop, name)())
    else:
        print(name, "is missing")
print([name for name in dir(shop) if name.startswith("count")])
