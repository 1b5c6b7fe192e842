import gc
task = None
gc.collect()
print(await count_orders())
