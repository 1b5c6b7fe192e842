Here is the program:

```python
from servers.shop import count_orders
print(await count_orders())
```
