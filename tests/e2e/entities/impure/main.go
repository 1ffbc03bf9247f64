// Impure is a module with types that violate the ABI in different ways, because
// parts of their states are not in their events, and one type that conforms.
package main

import hostd "github.com/hostd/hostd/guest-sdk/go"

// State is the state of an entity.
type State struct {
	Total int64  `json:"total"`
	Luck  uint64 `json:"luck"`
}

// Add is the command that adds an amount.
type Add struct {
	Amount int64 `json:"amount"`
}

// Added is an event.
type Added Add

func entity(name string, handle func(*hostd.Context, *State), look func(*State), more ...hostd.Option) *hostd.Type[State] {
	t := hostd.Entity[State](name, hostd.JSON, append(more, hostd.SnapshotEvery(2))...)
	hostd.Event(t, "added", func(s *State, e Added) { s.Total += e.Amount })
	hostd.Command(t, "add", func(c *hostd.Context, s *State, cmd Add) (State, error) {
		c.Emit(Added(cmd))
		handle(c, s)
		return *s, nil
	})
	hostd.Command(t, "leave", func(c *hostd.Context, s *State, cmd Add) (State, error) {
		c.Emit(Added(cmd))
		handle(c, s)
		c.Passivate()
		return *s, nil
	})
	hostd.Query(t, "state", func(_ *hostd.View, s *State, _ hostd.None) (State, error) {
		look(s)
		return *s, nil
	})
	return t
}

func nothing(*State) {}

func luck(c *hostd.Context, s *State) { s.Luck = c.Random() }

func count(s *State) { s.Luck++ }

// Lucky stores a random number in its state.
func Lucky() *hostd.Type[State] { return entity("lucky", luck, nothing) }

// Watched counts the queries that it has answered.
func Watched() *hostd.Type[State] {
	return entity("watched", func(*hostd.Context, *State) {}, count)
}

// Fair conforms to the ABI.
func Fair() *hostd.Type[State] {
	return entity("fair", func(*hostd.Context, *State) {}, nothing)
}

// Idle returns the three types above with the prefix idle. Their entities leave
// memory soon.
func Idle() []hostd.Registration {
	soon := hostd.PassivateAfter(20 * hostd.Millisecond)
	return []hostd.Registration{
		entity("idlelucky", luck, nothing, soon),
		entity("idlewatched", func(*hostd.Context, *State) {}, count, soon),
		entity("idlefair", func(*hostd.Context, *State) {}, nothing, soon),
	}
}

var _ = hostd.Serve("impure", "1.0.0", append(Idle(), Lucky(), Watched(), Fair())...)

func main() {}
