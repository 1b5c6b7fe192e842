import json

with open("orders.json") as file:
    orders = json.load(file)
print(len(orders))
