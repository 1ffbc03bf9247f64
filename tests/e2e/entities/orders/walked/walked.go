// Walked is Before with a fault: it evolves its state in the iteration order of
// a map.
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

// Placed is the event.
type Placed Item

func (s *State) placed(e Placed) {
	items := map[string]Item{e.SKU: Item(e)}
	for _, i := range s.Items {
		items[i.SKU] = i
	}
	s.Items = s.Items[:0]
	for _, i := range items {
		s.Items = append(s.Items, i)
	}
}

// Type declares the entity type.
func Type() *hostd.Type[State] {
	orders := hostd.Entity[State]("order", hostd.JSON, hostd.SnapshotEvery(4), hostd.StateVersion(1))
	hostd.Event(orders, "placed", (*State).placed)
	hostd.Command(orders, "place", func(c *hostd.Context, s *State, cmd Item) (State, error) {
		c.Emit(Placed(cmd))
		return *s, nil
	})
	hostd.Query(orders, "state", func(_ *hostd.View, s *State, _ hostd.None) (State, error) { return *s, nil })
	return orders
}

var _ = hostd.Serve("orders", "1.0.2", Type())

func main() {}
