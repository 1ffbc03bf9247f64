package telemetry_test

import (
	"testing"

	"github.com/hostd/hostd/host/telemetry"
)

func TestSampledTrace(t *testing.T) {
	const good = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
	trace := [16]byte{0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef}
	for header, want := range map[string][16]byte{
		good: trace,
		"cc-0123456789abcdef0123456789abcdef-0123456789abcdef-03-what-a-later-version-adds": trace,
		"00-0123456789abcdef0123456789abcdef-0123456789abcdef-00":                           {}, // not sampled
		"":                          {},
		good + "-more":              {}, // version 00 has no more fields
		good[:len(good)-1]:          {},
		"ff" + good[2:]:             {},
		"00_" + good[3:]:            {},
		good[:35] + "_" + good[36:]: {},
		good[:52] + "_" + good[53:]: {},
		"00-0123456789ABCDEF0123456789abcdef-0123456789abcdef-01": {}, // upper case
		"00-0123456789abcdef0123456789abcdef-0123456789abcdeg-01": {},
		"0g-0123456789abcdef0123456789abcdef-0123456789abcdef-01": {},
		"00-0123456789abcdef0123456789abcdef-0123456789abcdef-0z": {},
	} {
		if got := telemetry.SampledTrace(header); got != want {
			t.Errorf("%q is of %x, want %x", header, got, want)
		}
	}
}
