package trial

import (
	"bytes"

	"github.com/hostd/hostd/abi"
)

// Difference is in what two decisions differ, a set.
type Difference uint8

// What decisions differ in.
const (
	Rejection Difference = 1 << iota // one rejects, or with another code
	Events                           // or the state of a type that keeps its latest
	Reply
	Messages // sends and timers
	End      // the entity leaves memory, or is deleted
	Fault    // the other module failed
)

var differences = []string{"rejection", "events", "reply", "messages", "end", "fault"}

// Kinds is how many there are.
const Kinds = 6

// Kind is the one of a number below Kinds.
func Kind(n int) Difference { return 1 << n }

// Names are the words for a set.
func (d Difference) Names() (names []string) {
	for i, name := range differences {
		if d&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Compare says in what two decisions differ. same says whether two payloads
// mean the same; messages of rejections are for people, and are not compared.
func Compare(was, is *abi.Output, same func(a, b []byte) bool) (d Difference) {
	if was.Rejected || is.Rejected {
		if was.Rejected != is.Rejected || !bytes.Equal(was.Reject.Code, is.Reject.Code) {
			d = Rejection
		}
		return d
	}
	if was.HasState != is.HasState || !same(was.State, is.State) || !equal(was.Events, is.Events, func(a, b *abi.Event) bool {
		return bytes.Equal(a.Type, b.Type) && same(a.Payload, b.Payload) && equal(a.Tags, b.Tags, func(a, b *[]byte) bool { return bytes.Equal(*a, *b) })
	}) {
		d |= Events
	}
	if !same(was.Reply, is.Reply) {
		d |= Reply
	}
	if !equal(was.Sends, is.Sends, func(a, b *abi.Send) bool {
		return bytes.Equal(a.EntityType, b.EntityType) && bytes.Equal(a.EntityID, b.EntityID) && bytes.Equal(a.Command, b.Command) && same(a.Payload, b.Payload) &&
			a.WantsAnswer == b.WantsAnswer && bytes.Equal(a.OnReply, b.OnReply) && bytes.Equal(a.OnReject, b.OnReject)
	}) || !equal(was.Timers, is.Timers, func(a, b *abi.Timer) bool {
		return bytes.Equal(a.Name, b.Name) && a.Due == b.Due && a.Cancel == b.Cancel && bytes.Equal(a.Command, b.Command) && same(a.Payload, b.Payload) &&
			bytes.Equal(a.Expression, b.Expression) && bytes.Equal(a.Zone, b.Zone) && a.Missed == b.Missed
	}) {
		d |= Messages
	}
	if was.Passivate != is.Passivate || was.Delete != is.Delete {
		d |= End
	}
	return d
}

func equal[T any](a, b []T, same func(a, b *T) bool) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !same(&a[i], &b[i]) {
			return false
		}
	}
	return true
}
