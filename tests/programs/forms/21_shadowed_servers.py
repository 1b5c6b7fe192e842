from servers.shop import count_orders

servers = ["shop", "crm"]
for server in servers:
    print(server)
print(await count_orders())
