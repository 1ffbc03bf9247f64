// Cart is the example that every SDK has: a shopping cart that is filled,
// emptied and checked out, and that expires if it is not used for a day.
package main

import hostd "github.com/hostd/hostd/guest-sdk/go"

// Limits of a cart. Its total is at most 100 * 10,000 * 1,000,000, which fits
// the numbers of every language.
const (
	maxSKUs     = 100
	maxQuantity = 1_000 // maximum quantity in one add
	maxOfOne    = 10_000
	maxPrice    = 1_000_000
	maxSKUBytes = 64
)

const (
	abandonTimer = "abandon"
	abandonAfter = 24 * hostd.Hour
)

// Item is the quantity of one SKU in the cart.
type Item struct {
	Price    int64 `json:"price"`
	Quantity int64 `json:"quantity"`
}

// State of a cart. Its members are sorted by name, as in the carts of all SDKs.
type State struct {
	CheckedOut bool            `json:"checkedOut"`
	Items      map[string]Item `json:"items"`
}

// Add is the command that adds items of an SKU to the cart.
type Add struct {
	Price    int64  `json:"price" hostd:"desc=of one"`
	Quantity int64  `json:"quantity"`
	SKU      string `json:"sku"`
}

// Remove is the command that removes all items of an SKU.
type Remove struct {
	SKU string `json:"sku"`
}

// Total is the reply of commands and of the query.
type Total struct {
	Total int64 `json:"total"`
}

// Order is the message that a cart sends at check-out.
type Order struct {
	Cart  string `json:"cart"`
	Total int64  `json:"total"`
}

// Events.
type (
	Added struct {
		Price    int64  `json:"price"`
		Quantity int64  `json:"quantity"`
		SKU      string `json:"sku"`
	}
	Removed struct {
		SKU string `json:"sku"`
	}
	CheckedOut struct {
		Total int64 `json:"total"`
	}
	Expired struct{}
)

var errCheckedOut = hostd.Reject("checked_out", "the cart is checked out")

// Cart declares the entity type.
func Cart() *hostd.Type[State] {
	cart := hostd.Entity[State]("cart", hostd.JSON, hostd.Sends("orders"), hostd.StateVersion(1))
	cart.Initial(func() State { return State{Items: map[string]Item{}} })

	hostd.Event(cart, "added", func(s *State, e Added) {
		s.Items[e.SKU] = Item{Price: e.Price, Quantity: s.Items[e.SKU].Quantity + e.Quantity}
	})
	hostd.Event(cart, "removed", func(s *State, e Removed) { delete(s.Items, e.SKU) })
	hostd.Event(cart, "checkedOut", func(s *State, _ CheckedOut) { s.CheckedOut = true })
	hostd.Event(cart, "expired", func(s *State, _ Expired) { s.Items = map[string]Item{} })

	hostd.Command(cart, "add", add)
	hostd.Command(cart, "remove", remove)
	hostd.Command(cart, "checkout", checkOut)
	hostd.Command(cart, "expire", expire, hostd.Internal())
	hostd.Query(cart, "total", func(_ *hostd.View, s *State, _ hostd.None) (Total, error) {
		return Total{s.total()}, nil
	})
	return cart
}

func add(c *hostd.Context, s *State, cmd Add) (Total, error) {
	item, there := s.Items[cmd.SKU]
	switch {
	case s.CheckedOut:
		return Total{}, errCheckedOut
	case !isSKU(cmd.SKU) || cmd.Quantity < 1 || cmd.Quantity > maxQuantity || cmd.Price < 0 || cmd.Price > maxPrice:
		return Total{}, hostd.Reject("invalid_item", "the item is out of bounds")
	case !there && len(s.Items) == maxSKUs || item.Quantity+cmd.Quantity > maxOfOne:
		return Total{}, hostd.Reject("cart_full", "the cart has no room for it")
	}
	c.Emit(Added{cmd.Price, cmd.Quantity, cmd.SKU})
	c.SetTimer(abandonTimer, c.Now().Add(abandonAfter), "expire", nil)
	return Total{s.total()}, nil
}

func remove(c *hostd.Context, s *State, cmd Remove) (Total, error) {
	if s.CheckedOut {
		return Total{}, errCheckedOut
	}
	if _, there := s.Items[cmd.SKU]; !there {
		return Total{}, hostd.Reject("unknown_sku", "the cart has none of it")
	}
	c.Emit(Removed(cmd))
	if len(s.Items) == 0 {
		c.CancelTimer(abandonTimer)
	}
	return Total{s.total()}, nil
}

func checkOut(c *hostd.Context, s *State, _ hostd.None) (Total, error) {
	switch {
	case s.CheckedOut:
		return Total{}, errCheckedOut
	case len(s.Items) == 0:
		return Total{}, hostd.Reject("empty_cart", "there is nothing to check out")
	}
	total := s.total()
	c.Emit(CheckedOut{total}, "checkout")
	c.CancelTimer(abandonTimer)
	c.Send("orders", c.EntityID(), "place", Order{c.EntityID(), total})
	return Total{total}, nil
}

// expire is the command of the timer. A cart that is checked out or empty has
// no timer, but the command of an earlier timer may still arrive.
func expire(c *hostd.Context, s *State, _ hostd.None) (hostd.None, error) {
	if !s.CheckedOut && len(s.Items) > 0 {
		c.Emit(Expired{})
	}
	return hostd.None{}, nil
}

func (s *State) total() (sum int64) {
	for _, item := range s.Items {
		sum += item.Quantity * item.Price
	}
	return sum
}

// isSKU reports whether a text is a letter, followed by letters, digits and
// hyphens.
func isSKU(text string) bool {
	if text == "" || len(text) > maxSKUBytes {
		return false
	}
	for i := range len(text) {
		c := text[i]
		letter := 'a' <= c && c <= 'z'
		if !letter && (i == 0 || c != '-' && (c < '0' || c > '9')) {
			return false
		}
	}
	return true
}

var _ = hostd.Serve("cart", "1.0.0", Cart())

func main() {}
