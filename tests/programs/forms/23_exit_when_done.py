import sys
from servers.shop import count_orders

if await count_orders() == 6:
    print("nothing to do")
    sys.exit(0)
print("unexpected")
