// Swapped is Now with a fault: its upcaster swaps two fields.
package main

import hostd "github.com/hostd/hostd/guest-sdk/go"

// Item is an ordered item.
type Item struct {
	SKU   string `json:"sku"`
	Count int64  `json:"count"`
	Cents int64  `json:"cents"` // price of one
}

// State is the state of an order.
type State struct {
	Items []Item `json:"items"`
}

// PlacedV1 is Before's event.
type PlacedV1 Item

// Placed is the event: several items at once.
type Placed struct {
	Items []Item `json:"items"`
}

// Place is the command.
type Place struct {
	Items []Item `json:"items"`
}

// Type declares the entity type.
func Type() *hostd.Type[State] {
	orders := hostd.Entity[State]("order", hostd.JSON, hostd.SnapshotEvery(4), hostd.StateVersion(1))
	hostd.Upcast(orders, "placed", 1, func(old PlacedV1) Placed {
		return Placed{Items: []Item{{SKU: old.SKU, Count: old.Cents, Cents: old.Count}}}
	})
	hostd.Event(orders, "placed", func(s *State, e Placed) { s.Items = append(s.Items, e.Items...) })
	hostd.Command(orders, "place", func(c *hostd.Context, s *State, cmd Place) (State, error) {
		c.Emit(Placed(cmd))
		return *s, nil
	})
	hostd.Query(orders, "state", func(_ *hostd.View, s *State, _ hostd.None) (State, error) { return *s, nil })
	return orders
}

var _ = hostd.Serve("orders", "2.0.1", Type())

func main() {}
