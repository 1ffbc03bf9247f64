// Session is a user's visit to a shop of a mall. The id of its entity consists
// of the mall and the user, such as mall7-user42. Only its latest state
// matters, so it is a durable-state type: the host stores the session after
// each command that changes it. A session that is not used for 30 minutes
// leaves memory; the next command loads it unchanged.
package main

import hostd "github.com/hostd/hostd/guest-sdk/go"

// Session is the state.
type Session struct {
	Mall     string        `json:"mall"`
	User     string        `json:"user"`
	LoggedIn bool          `json:"loggedIn"`
	Since    hostd.Instant `json:"since"` // of the login, nanoseconds since 1970 UTC
	Cart     []Line        `json:"cart"`
}

// Line is an item in the cart and its quantity.
type Line struct {
	Item     string `json:"item"`
	Quantity int64  `json:"quantity"`
}

const (
	maxLines    = 100
	maxQuantity = 1000
)

// Sessions declares the entity type.
func Sessions() *hostd.Type[Session] {
	session := hostd.Durable[Session]("session", hostd.JSON, hostd.PassivateAfter(30*hostd.Minute))
	hostd.Command(session, "login", login)
	hostd.Command(session, "add", add)
	hostd.Command(session, "logout", logout)
	hostd.Query(session, "cart", func(_ *hostd.View, s *Session, _ hostd.None) (Session, error) { return *s, nil })
	return session
}

// names splits the id of a session at its first hyphen.
func names(id string) (mall, user string, ok bool) {
	for i := range len(id) {
		if id[i] == '-' {
			return id[:i], id[i+1:], i > 0 && i+1 < len(id)
		}
	}
	return "", "", false
}

// login begins the session. If the user is logged in already, the session and
// its cart stay.
func login(c *hostd.Context, s *Session, _ hostd.None) (Session, error) {
	mall, user, ok := names(c.EntityID())
	if !ok {
		return Session{}, hostd.Reject("invalid_id", "a session's id is a mall and a user, such as mall7-user42")
	}
	if !s.LoggedIn {
		*s = Session{Mall: mall, User: user, LoggedIn: true, Since: c.Now(), Cart: s.Cart}
	}
	return *s, nil
}

// add puts items into the cart.
func add(_ *hostd.Context, s *Session, l Line) (Session, error) {
	switch {
	case !s.LoggedIn:
		return Session{}, hostd.Reject("not_logged_in", "log in first")
	case l.Item == "" || l.Quantity < 1 || l.Quantity > maxQuantity:
		return Session{}, hostd.Reject("invalid_line", "an item and a quantity from 1 to 1000 are needed")
	}
	for i := range s.Cart {
		if s.Cart[i].Item == l.Item {
			if s.Cart[i].Quantity+l.Quantity > maxQuantity {
				return Session{}, hostd.Reject("invalid_line", "at most 1000 of an item")
			}
			s.Cart[i].Quantity += l.Quantity
			return *s, nil
		}
	}
	if len(s.Cart) == maxLines {
		return Session{}, hostd.Reject("cart_full", "at most 100 items")
	}
	s.Cart = append(s.Cart, l)
	return *s, nil
}

// logout ends the session and lets it leave memory. The reply is the session
// that has ended.
func logout(c *hostd.Context, s *Session, _ hostd.None) (Session, error) {
	if !s.LoggedIn {
		return *s, nil
	}
	was := *s
	*s = Session{}
	c.Passivate()
	return was, nil
}

var _ = hostd.Serve("session", "1.0.0", Sessions())

func main() {}
