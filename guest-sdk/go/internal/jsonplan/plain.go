package jsonplan

import "math/bits"

const (
	eachByte = 0x0101010101010101
	topBits  = 0x8080808080808080
)

// plainText returns the first position at or after pos where s has a quote, a
// backslash, a control character or a non-ASCII byte; len(s) if there is none.
// It checks eight bytes at a time (Hacker's Delight, 6-1), because loop
// iterations are expensive inside Wasm.
func plainText[T string | []byte](s T, pos int) int {
	for ; pos+8 <= len(s); pos += 8 {
		x := uint64(s[pos]) | uint64(s[pos+1])<<8 | uint64(s[pos+2])<<16 | uint64(s[pos+3])<<24 |
			uint64(s[pos+4])<<32 | uint64(s[pos+5])<<40 | uint64(s[pos+6])<<48 | uint64(s[pos+7])<<56
		quote := x ^ eachByte*'"'
		backslash := x ^ eachByte*'\\'
		found := ((quote-eachByte)&^quote | (backslash-eachByte)&^backslash | (x-eachByte*0x20)&^x | x) & topBits
		if found != 0 {
			return pos + bits.TrailingZeros64(found)/8
		}
	}
	for ; pos < len(s); pos++ {
		if c := s[pos]; c < 0x20 || c >= 0x80 || c == '"' || c == '\\' {
			break
		}
	}
	return pos
}
