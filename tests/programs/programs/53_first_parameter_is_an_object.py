from servers.shop import create_customer

# The object alone, the object with an option, and all arguments in one dict
first = await create_customer({"name": "Mary Jackson", "email": "mary@example.com", "city": "Hampton", "country": "US"})
second = await create_customer({"name": "Tim Lee", "email": "tim@example.com"}, send_welcome=True)
third = await create_customer({"customer": {"name": "Joan Clarke", "email": "joan@example.com"}, "send_welcome": False})

for customer in (first, second, third):
    city = customer["address"]["city"] if customer["address"] else "unknown"
    print(customer["id"], customer["name"], city)
