package telemetry

import "encoding/hex"

// SampledTrace is the trace that a request is part of, as the header
// traceparent of W3C's Trace Context says it; zeros where there is none, or
// where it is not sampled.
func SampledTrace(traceparent string) (trace [16]byte) {
	const length = len("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	p := traceparent
	if len(p) < length || p[:2] == "ff" || p[:2] == "00" && len(p) > length || len(p) > length && p[length] != '-' || p[2] != '-' || p[35] != '-' || p[52] != '-' {
		return trace
	}
	var rest [16]byte // in turn the version, the span and the flags
	for _, part := range []string{p[:2], p[36:52], p[53:55]} {
		if !unhex(rest[:], part) {
			return trace
		}
	}
	if rest[0]&1 == 0 || !unhex(trace[:], p[3:35]) {
		return [16]byte{}
	}
	return trace
}

// unhex reads digits, which are in lower case, and reports whether they are.
func unhex(to []byte, digits string) bool {
	for i := range len(digits) {
		if c := digits[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	_, err := hex.Decode(to, []byte(digits))
	return err == nil
}
