package membership

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// Protection against memory exhaustion.
//
// memberlist allocates as much memory as a message announces. A stream of 30
// bytes can make it allocate a million nodes, or 20 MB that are never sent, and
// a packet of 64 KB can decompress to 40 MB. Without a gossip key, anyone who
// reaches the port can send such messages. So the transport inspects messages
// before memberlist sees them, and passes on only what memberlist sends with
// this package's settings: no compression, no user messages, no user state.
//
// With a key, memberlist neither decompresses nor decodes anything that the key
// does not authenticate, so encrypted messages pass uninspected.

const (
	// maxStreams limits the streams opened by other nodes; excess streams are
	// closed. Each node opens a stream every ten seconds, and further streams
	// for probes.
	maxStreams = 64
	// maxStreamNodes limits how many nodes a stream may announce.
	maxStreamNodes = 4096
	// maxStreamBytes limits the bytes that are read from a stream; a node needs
	// less than 700 bytes.
	maxStreamBytes = 4 << 20
)

// memberlist's message types that are distinguished here, by first byte.
const (
	messagePing       = 0
	messageAck        = 2
	messageDead       = 5 // the last type of single message, except messageNack
	messagePushPull   = 6
	messageCompound   = 7
	messageEncrypted  = 10
	messageNack       = 11
	messageChecked    = 12 // a 4-byte checksum and another message
	messageError      = 13
	messageLabelled   = 244
	checksumBytes     = 4
	maxHeaderMembers  = 8
	maxHeaderKeyBytes = 31
)

// errUnwanted: a stream starts with a message that memberlist does not send
// with this package's settings.
var errUnwanted = errors.New("not a gossip message")

// acceptsPacket reports whether an unencrypted packet may be passed to
// memberlist.
func acceptsPacket(packet []byte) bool {
	if len(packet) >= 2 && packet[0] == messageLabelled {
		packet = packet[min(2+int(packet[1]), len(packet)):]
	}
	if len(packet) > checksumBytes && packet[0] == messageChecked {
		packet = packet[1+checksumBytes:]
	}
	if len(packet) < 2 || packet[0] != messageCompound {
		return isSingle(packet)
	}
	// A count, the 2-byte lengths, and the messages.
	n := int(packet[1])
	lengths := packet[2:]
	if len(lengths) < 2*n {
		return false
	}
	rest := lengths[2*n:]
	for i := range n {
		size := int(binary.BigEndian.Uint16(lengths[2*i:]))
		if size > len(rest) || !isSingle(rest[:size]) {
			return false
		}
		rest = rest[size:]
	}
	return true
}

// isSingle reports whether a message contains no other messages.
func isSingle(message []byte) bool {
	return len(message) > 0 && (message[0] <= messageDead || message[0] == messageNack)
}

// guardedStream is a stream whose beginning has been inspected.
type guardedStream struct {
	net.Conn
	rest io.Reader // the stream, including the inspected beginning
}

func (g *guardedStream) Read(b []byte) (int, error) { return g.rest.Read(b) }

// guardedReply is a stream opened by this node. The answer is inspected on the
// first read.
type guardedReply struct {
	net.Conn
	reply net.Conn
	err   error
}

func (g *guardedReply) Read(b []byte) (int, error) {
	if g.reply == nil && g.err == nil {
		g.reply, g.err = guard(g.Conn)
	}
	if g.err != nil {
		return 0, g.err
	}
	return g.reply.Read(b)
}

// guard inspects the beginning of a stream and returns a stream that still
// includes it.
func guard(conn net.Conn) (net.Conn, error) {
	in := bufio.NewReaderSize(io.LimitReader(conn, maxStreamBytes), 1<<10)
	at := 0
	next := func(n int) ([]byte, error) {
		b, err := in.Peek(at + n)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errUnwanted, err)
		}
		b, at = b[at:at+n], at+n
		return b, nil
	}
	kind, err := next(1)
	if err == nil && kind[0] == messageLabelled {
		var size []byte
		if size, err = next(1); err == nil {
			if _, err = next(int(size[0])); err == nil {
				kind, err = next(1)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	switch kind[0] {
	case messagePing, messageAck, messageEncrypted, messageError:
	case messagePushPull:
		if err := checkHeader(next); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("%w: message %d", errUnwanted, kind[0])
	}
	return &guardedStream{conn, in}, nil
}

// checkHeader reads the header of a full state exchange: a MessagePack map with
// small members that says how many nodes and how many bytes of state follow.
// https://github.com/msgpack/msgpack/blob/master/spec.md
func checkHeader(next func(n int) ([]byte, error)) error {
	head, err := next(1)
	if err != nil {
		return err
	}
	members := int(head[0]) - 0x80
	if members < 0 || members > maxHeaderMembers {
		return fmt.Errorf("%w: the header is not a map", errUnwanted)
	}
	for range members {
		if head, err = next(1); err != nil {
			return err
		}
		size := int(head[0]) - 0xa0
		if size < 0 || size > maxHeaderKeyBytes {
			return fmt.Errorf("%w: a header key is not a short string", errUnwanted)
		}
		key, err := next(size)
		if err != nil {
			return err
		}
		name := string(key)
		value, err := readNumber(next)
		switch {
		case err != nil:
			return err
		case name == "Nodes" && value > maxStreamNodes, name == "UserStateLen" && value > 0:
			return fmt.Errorf("%w: %s is %d", errUnwanted, name, value)
		}
	}
	return nil
}

// readNumber reads a boolean (as 0) or a non-negative number.
func readNumber(next func(n int) ([]byte, error)) (uint64, error) {
	head, err := next(1)
	if err != nil {
		return 0, err
	}
	switch kind := head[0]; {
	case kind < 0x80:
		return uint64(kind), nil
	case kind == 0xc2 || kind == 0xc3: // false, true
		return 0, nil
	case kind >= 0xcc && kind <= 0xcf || kind >= 0xd0 && kind <= 0xd3: // unsigned, signed
		size := 1 << (kind & 3)
		b, err := next(size)
		if err != nil {
			return 0, err
		}
		value := uint64(0)
		for _, digit := range b {
			value = value<<8 | uint64(digit)
		}
		return value, nil // a negative number is returned as a huge one
	default:
		return 0, fmt.Errorf("%w: a header value is not a number", errUnwanted)
	}
}
