package journal

import (
	"encoding/binary"
	"fmt"
)

// SectionTokens gives messages of the record their tokens: TokenOp. From
// sharding.VersionMessageTokens on.
const SectionTokens SectionKind = 10

// TokenOp gives one message of the same record a token. The token of a message
// whose outcome is expected comes back with the outcome. The token of an
// outcome is the token of the message that the outcome answers.
type TokenOp struct {
	Item  uint16 // index of the message in the messages section
	Token []byte // 1 to 255 bytes
}

// AppendTokenOp appends one operation to the data of a tokens section: item
// u16, token (len u8). Items ascend.
func AppendTokenOp(dst []byte, op TokenOp) []byte {
	return append8(binary.LittleEndian.AppendUint16(dst, op.Item), string(op.Token))
}

// Tokens reads the data of a tokens section alongside the messages of the
// record, in order.
type Tokens []byte

// Next returns the token of a message, or nil if it has none. Items ascend from
// call to call. The token aliases the section.
func (t *Tokens) Next(item uint16) ([]byte, error) {
	if len(*t) == 0 {
		return nil, nil
	}
	d := decoder{b: *t}
	at, token := d.u16(), d.take(int(d.u8()))
	switch {
	case d.bad || len(token) == 0 || at < item:
		return nil, fmt.Errorf("%w: malformed message tokens", ErrDamaged)
	case at > item:
		return nil, nil
	}
	*t = d.b
	return token, nil
}

// End returns an error if tokens are left after the last message.
func (t *Tokens) End() error {
	if len(*t) > 0 {
		return fmt.Errorf("%w: message token without a message", ErrDamaged)
	}
	return nil
}
