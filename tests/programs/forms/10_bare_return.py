from servers.shop import count_orders

total = await count_orders(status="cancelled")
print("cancelled:", total)
if total < 10:
    print("few")
    return
print("many")
