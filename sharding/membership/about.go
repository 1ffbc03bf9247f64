package membership

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/hostd/hostd/sharding"
)

// nodeMeta is the description that a node announces of itself, as memberlist's
// node metadata.
type nodeMeta struct {
	node        sharding.NodeID
	incarnation uint64
	address     string
	cluster     string
	disk        string
	leaving     bool
}

const (
	aboutVersion = 1
	flagLeaving  = 1 << 0
	// nameSeparator separates the node id from the incarnation in a name. No node
	// id contains it.
	nameSeparator = "#"
)

// errMalformed: the metadata of a node was not written by this package; the
// node is ignored.
var errMalformed = errors.New("malformed node metadata in gossip")

// name returns the node's name in memberlist. It includes the incarnation,
// because memberlist rejects a known name at a new address until the node at
// the old address has been dead for a long time.
func (a *nodeMeta) name() string {
	return string(a.node) + nameSeparator + strconv.FormatUint(a.incarnation, 16)
}

// encode returns at most 414 bytes if the fields are within their limits.
func (a *nodeMeta) encode() []byte {
	var flags byte
	if a.leaving {
		flags |= flagLeaving
	}
	b := []byte{aboutVersion, flags}
	b = binary.LittleEndian.AppendUint64(b, a.incarnation)
	for _, s := range []string{string(a.node), a.address, a.cluster, a.disk} {
		b = append(append(b, byte(len(s))), s...)
	}
	return b
}

func decodeMeta(b []byte) (a nodeMeta, err error) {
	if len(b) < 10 {
		return a, fmt.Errorf("%w: %d bytes", errMalformed, len(b))
	}
	if b[0] != aboutVersion {
		return a, fmt.Errorf("%w: version %d", errMalformed, b[0])
	}
	a.leaving = b[1]&flagLeaving != 0
	a.incarnation = binary.LittleEndian.Uint64(b[2:])
	b = b[10:]
	var node string
	for _, field := range []struct {
		to  *string
		max int
	}{{&node, maxNodeBytes}, {&a.address, maxAddressBytes}, {&a.cluster, maxIDBytes}, {&a.disk, maxIDBytes}} {
		if len(b) == 0 || int(b[0]) > field.max || int(b[0]) > len(b)-1 {
			return nodeMeta{}, fmt.Errorf("%w: a field is too long or truncated", errMalformed)
		}
		*field.to = string(b[1 : 1+int(b[0])])
		b = b[1+int(b[0]):]
	}
	a.node = sharding.NodeID(node)
	// Later versions may append fields, which are ignored here.
	if a.node == "" || a.incarnation == 0 || checkAddress(a.address) != nil {
		return nodeMeta{}, fmt.Errorf("%w: a field is missing", errMalformed)
	}
	return a, nil
}
