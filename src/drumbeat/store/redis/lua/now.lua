-- The store's clock.
return now()
