from servers.shop import get_order, average_order_value

# Kick off the request, do something else, then await it
order_coro = get_order("O-1006")
average = await average_order_value()

order = await order_coro
difference = order["total"] - average
print(f"{order['id']} is {difference:+.2f} against the average of {average:.2f}")
