package abi

import "iter"

const (
	// MaxSettingsBytes limits the body of a settings frame.
	MaxSettingsBytes = 4 << 10
	// CallExtraBytes is the number of bytes by which the input of hostd_handle
	// and hostd_query may exceed Limits.RequestBytes, because the principal and
	// settings frames are not part of the caller's payload.
	CallExtraBytes = PrincipalExtraBytes + HeaderBytes + MaxSettingsBytes
)

// AppendSetting appends one setting to the body of a settings frame.
func AppendSetting(body []byte, name, value string) []byte {
	return AppendField(AppendField(body, name), value)
}

// AppendSettings appends a settings frame.
func AppendSettings[T string | []byte](dst []byte, body T) []byte {
	return AppendFrame(dst, InSettings, body)
}

// Settings iterates over the settings in the body of a settings frame. It stops
// at the first malformed setting. The slices are sub-slices of the body.
func Settings(body []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for len(body) > 0 {
			name, rest, ok := cutField(body)
			if !ok {
				return
			}
			value, rest, ok := cutField(rest)
			if !ok || !yield(name, value) {
				return
			}
			body = rest
		}
	}
}
