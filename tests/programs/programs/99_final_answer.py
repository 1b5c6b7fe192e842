```python
from servers.shop import average_order_value

average = await average_order_value()
final_answer(f"The average order value is {average} euros")
```
