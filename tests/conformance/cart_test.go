package conformance

import (
	"testing"

	"github.com/hostd/hostd/tests/support/guests"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestCartsAreEqual compares two instances of the cart in Go; the builders of
// other languages compare theirs with it. What they hold it to comes up.
func TestCartsAreEqual(t *testing.T) {
	cart := guests.Compile(t, testkit.BuildExample(t, "cart"), nil)
	t.Run("go", func(t *testing.T) { guests.CartsAreEqual(t, cart, cart) })
	for _, name := range []string{"cart-ts"} {
		t.Run(name, func(t *testing.T) {
			guests.CartsAreEqual(t, cart, guests.Compile(t, testkit.BuildExample(t, name), nil))
		})
	}
}
