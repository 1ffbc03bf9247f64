package main

import (
	"fmt"
	"testing"
	"time"

	hostd "github.com/hostd/hostd/guest-sdk/go"
	"github.com/hostd/hostd/guest-sdk/go/hostdtest"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func begun(t *testing.T) *hostdtest.Driver[Session] {
	d := hostdtest.New(t, Sessions()).ID("mall7-user42").At(noon)
	d.When("login", nil)
	return d
}

func TestVisit(t *testing.T) {
	d := hostdtest.New(t, Sessions()).ID("mall7-user42").At(noon)
	d.When("add", Line{"tea", 1}).Rejected("not_logged_in")
	in := Session{Mall: "mall7", User: "user42", LoggedIn: true, Since: hostd.Instant(noon.UnixNano())}
	d.When("login", nil).Reply(in)
	d.At(noon.Add(time.Hour)).When("login", nil).Reply(in)
	d.When("add", Line{"tea", 1})
	d.When("add", Line{"cup", 2})
	in.Cart = []Line{{"tea", 4}, {"cup", 2}}
	d.When("add", Line{"tea", 3}).Reply(in)
	d.Query("cart", nil).Reply(in)
	if r := d.When("logout", nil).Reply(in); !r.Output().Passivate {
		t.Error("a session that is over stays in memory")
	}
	d.Then(Session{})
	d.When("logout", nil).Reply(Session{})
}

func TestNoIDs(t *testing.T) {
	for _, id := range []string{"user42", "-user42", "mall7-"} {
		hostdtest.New(t, Sessions()).ID(id).When("login", nil).Rejected("invalid_id")
	}
	d := hostdtest.New(t, Sessions()).ID("mall7-user-4-2")
	d.When("login", nil)
	if s := d.State(); s.Mall != "mall7" || s.User != "user-4-2" {
		t.Errorf("%+v", s)
	}
}

func TestCartIsBounded(t *testing.T) {
	d := begun(t)
	for _, l := range []Line{{"", 1}, {"tea", 0}, {"tea", -1}, {"tea", 1001}} {
		d.When("add", l).Rejected("invalid_line")
	}
	d.When("add", Line{"item 0", 999})
	d.When("add", Line{"item 0", 2}).Rejected("invalid_line")
	for i := 1; i < maxLines; i++ {
		d.When("add", Line{fmt.Sprintf("item %d", i), 1})
	}
	d.When("add", Line{"one more", 1}).Rejected("cart_full")
	d.When("add", Line{"item 0", 1})
}
