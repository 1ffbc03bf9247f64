package abi

import "iter"

const (
	// MaxSettingsBytes bounds the body of a settings frame.
	MaxSettingsBytes = 4 << 10
	// CallExtraBytes is how much more than Limits.RequestBytes the input of
	// hostd_handle and hostd_query may have: the frames of the principal and of
	// the settings are none of the caller's payload.
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

// Settings reads the body of a settings frame. It ends where the body is none
// any more. The slices are sub-slices of the body.
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
