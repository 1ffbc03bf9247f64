package trial

import (
	"bytes"

	"github.com/hostd/hostd/abi"
)

// Difference is a set of the aspects in which two decisions differ.
type Difference uint8

// Aspects of a decision.
const (
	Rejection Difference = 1 << iota // only one of the two modules rejects, or the codes of the rejections differ
	Events                           // events, or the state of a durable type
	Reply
	Messages // sent messages and timers
	End      // the command passivates or deletes the entity
	Fault    // the shadow module failed
)

var differences = []string{"rejection", "events", "reply", "messages", "end", "fault"}

// Kinds is the number of aspects.
const Kinds = 6

// Kind returns the aspect with a number below Kinds.
func Kind(n int) Difference { return 1 << n }

// Names returns the names of the aspects in a set.
func (d Difference) Names() (names []string) {
	for i, name := range differences {
		if d&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Compare returns the aspects in which two decisions differ. same reports
// whether two payloads are equivalent. The texts of rejections are meant for
// people and are not compared.
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
			a.WantsAnswer == b.WantsAnswer && bytes.Equal(a.OnReply, b.OnReply) && bytes.Equal(a.OnReject, b.OnReject) && bytes.Equal(a.Token, b.Token)
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
