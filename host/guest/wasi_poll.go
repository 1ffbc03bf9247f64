package guest

import (
	"encoding/binary"
	"math"

	"github.com/tetratelabs/wazero/api"
)

// Layout of the records of poll_oneoff in WASI preview 1.
const (
	subscriptionBytes = 48 // userdata u64, tag u8 at 8, clock {id u32, timeout u64 at 24, precision, flags u16 at 40}
	eventBytes        = 32 // userdata u64, errno u16 at 8, type u8 at 10
	maxSubscriptions  = 64

	tagClock      = 0
	flagAbsolute  = 1
	lastTag       = 2
	atTag         = 8
	atTimeout     = 24
	atFlags       = 40
	atEventErrno  = 8
	atEventType   = 10
	neverDeadline = math.MaxInt64
)

// poll implements poll_oneoff. Nothing but a clock ever becomes ready, and no
// real time passes: poll just sets the call's clock to the earliest deadline.
func poll(g *Instance, memory api.Memory, stack []uint64) uint32 {
	in, out, count, events := uint32(stack[0]), uint32(stack[1]), uint32(stack[2]), uint32(stack[3])
	if count == 0 || count > maxSubscriptions {
		return errnoInval
	}
	view, ok := memory.Read(in, count*subscriptionBytes)
	if !ok {
		return errnoFault
	}
	// The guest may pass overlapping input and output: copy before writing.
	var copied [maxSubscriptions * subscriptionBytes]byte
	subscriptions := copied[:copy(copied[:], view)]
	answers, ok := memory.Read(out, count*eventBytes)
	if !ok {
		return errnoFault
	}
	after, ok := passTime(g.clock, subscriptions)
	if !ok {
		return errnoInval
	}
	n := writeEvents(answers, subscriptions, g.clock, after)
	g.clock = after
	if !memory.WriteUint32Le(events, n) {
		return errnoFault
	}
	return errnoSuccess
}

// passTime returns the clock at the earliest deadline. No time passes if a
// descriptor is polled too, because that fails at once. ok is false if a
// subscription has an unknown type.
func passTime(clock int64, subscriptions []byte) (after int64, ok bool) {
	after = neverDeadline
	for s := subscriptions; len(s) > 0; s = s[subscriptionBytes:] {
		switch tag := s[atTag]; {
		case tag > lastTag:
			return clock, false
		case tag != tagClock:
			after = clock
		default:
			after = min(after, deadline(clock, s))
		}
	}
	return max(after, clock), true
}

// deadline returns the time at which a clock subscription ends if it was made
// at the time in clock.
func deadline(clock int64, subscription []byte) int64 {
	at := int64(min(binary.LittleEndian.Uint64(subscription[atTimeout:]), neverDeadline))
	if binary.LittleEndian.Uint16(subscription[atFlags:])&flagAbsolute != 0 {
		return at
	}
	if at > neverDeadline-max(clock, 0) {
		return neverDeadline
	}
	return clock + at
}

// writeEvents writes an event for every deadline up to after and an error for
// every descriptor. It returns the number of events.
func writeEvents(dst, subscriptions []byte, clock, after int64) (n uint32) {
	for s := subscriptions; len(s) > 0; s = s[subscriptionBytes:] {
		errno := uint16(errnoSuccess)
		if s[atTag] != tagClock {
			errno = errnoBadF
		} else if deadline(clock, s) > after {
			continue
		}
		event := dst[n*eventBytes:][:eventBytes]
		clear(event)
		copy(event, s[:8])
		binary.LittleEndian.PutUint16(event[atEventErrno:], errno)
		event[atEventType] = s[atTag]
		n++
	}
	return n
}
