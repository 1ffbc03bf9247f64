package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	hostd "github.com/hostd/hostd/guest-sdk/go"
	"github.com/hostd/hostd/guest-sdk/go/hostdtest"
)

func TestCart(t *testing.T) {
	d := hostdtest.New(t, Cart())
	d.Then(State{Items: map[string]Item{}})
	d.When("checkout", nil).Rejected("empty_cart")
	d.When("add", Add{5, 2, "pear"}).Events(Added{5, 2, "pear"}).Reply(Total{10})
	d.When("add", hostd.RawJSON(`{"price":"4","quantity":1,"sku":"pear"}`)).Events(Added{4, 1, "pear"}).Reply(Total{12})
	d.When("add", Add{0, 1000, "b-1"}).Reply(Total{12})
	d.When("remove", Remove{"plum"}).Rejected("unknown_sku")
	d.When("remove", Remove{"b-1"}).Events(Removed{"b-1"}).Reply(Total{12})
	d.When("checkout", nil).Events(CheckedOut{12}).Reply(Total{12})
	for command, payload := range map[string]any{"add": Add{1, 1, "fig"}, "remove": Remove{"pear"}, "checkout": nil} {
		d.When(command, payload).Rejected("checked_out")
	}
	d.Query("total", nil).Reply(Total{12})
	d.Then(State{CheckedOut: true, Items: map[string]Item{"pear": {4, 3}}})
}

func TestItemsOutOfBounds(t *testing.T) {
	d := hostdtest.New(t, Cart())
	for _, cmd := range []Add{
		{1, 1, ""}, {1, 1, "1a"}, {1, 1, "-a"}, {1, 1, "A"}, {1, 1, "ä"}, {1, 1, "a b"}, {1, 1, strings.Repeat("a", 65)},
		{1, 0, "a"}, {1, -1, "a"}, {1, 1001, "a"}, {-1, 1, "a"}, {1_000_001, 1, "a"},
	} {
		d.When("add", cmd).Rejected("invalid_item")
	}
	d.When("add", nil).Rejected("invalid_item")
	d.When("add", Add{1_000_000, 1000, strings.Repeat("a", 64)}).Reply(Total{1_000_000_000})
}

func TestCartIsFull(t *testing.T) {
	d := hostdtest.New(t, Cart())
	for i := range 10 {
		d.When("add", Add{1, 1000, "a"}).Reply(Total{int64(1000 * (i + 1))})
	}
	d.When("add", Add{1, 1, "a"}).Rejected("cart_full")
	for i := range 99 {
		d.When("add", Add{0, 1, fmt.Sprint("b", i)}).Reply(Total{10_000})
	}
	d.When("add", Add{0, 1, "c"}).Rejected("cart_full")
	d.When("remove", Remove{"b7"})
	d.When("add", Add{0, 1, "c"}).Reply(Total{10_000})
}

func TestCartExpires(t *testing.T) {
	w := hostdtest.NewWorld(t, 1, Cart(), orders())
	w.Command("cart", "a", "add", Add{5, 2, "pear"})
	w.Advance(23 * time.Hour)
	w.Run()
	w.Command("cart", "a", "add", Add{1, 1, "fig"}) // a day later
	w.Advance(23 * time.Hour)
	w.Run()
	if reply := string(w.Query("cart", "a", "total", nil).Reply); reply != `{"total":11}` {
		t.Errorf("after 23 hours: %s", reply)
	}
	w.Advance(time.Hour)
	w.Run()
	if reply := string(w.Query("cart", "a", "total", nil).Reply); reply != `{"total":0}` {
		t.Errorf("after a day: %s", reply)
	}
}

func TestCheckOutOrders(t *testing.T) {
	w := hostdtest.NewWorld(t, 1, Cart(), orders())
	w.Command("cart", `a"b`, "add", Add{5, 2, "pear"})
	w.Command("cart", `a"b`, "checkout", nil)
	w.Advance(48 * time.Hour)
	w.Run()
	if reply := string(w.Query("orders", `a"b`, "placed", nil).Reply); reply != `{"cart":"a\"b","total":10}` {
		t.Errorf("ordered: %s", reply)
	}
	if reply := string(w.Query("cart", `a"b`, "total", nil).Reply); reply != `{"total":10}` {
		t.Errorf("two days after: %s", reply)
	}
}

// orders is a type that stores the orders it receives.
func orders() *hostd.Type[Order] {
	o := hostd.Durable[Order]("orders", hostd.JSON)
	hostd.Command(o, "place", func(_ *hostd.Context, s *Order, cmd Order) (hostd.None, error) {
		*s = cmd
		return hostd.None{}, nil
	})
	hostd.Query(o, "placed", func(_ *hostd.View, s *Order, _ hostd.None) (Order, error) { return *s, nil })
	return o
}
