package store

import (
	"encoding/hex"
	"errors"
	"testing"

	"github.com/hostd/hostd/journal"
)

func TestGoldenImportProgress(t *testing.T) {
	for text, i := range map[string]Import{
		"0102000000000000000000000000000f0a0000000000000001": {ID: journal.ImportID{1, 2, 15: 15}, Next: 10},
		"0102000000000000000000000000000f000100000000000002": {ID: journal.ImportID{1, 2, 15: 15}, Next: 256, Complete: true},
	} {
		if got := hex.EncodeToString(AppendImport(nil, &i)); got != text {
			t.Errorf("the format changed: %s", got)
		}
		body, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := DecodeImport(body); err != nil || back != i {
			t.Errorf("%+v, %v", back, err)
		}
		body[24] = 3
		for _, bad := range [][]byte{body, body[:24], append(body, 0)} {
			if _, err := DecodeImport(bad); !errors.Is(err, journal.ErrDamaged) {
				t.Errorf("%x: %v", bad, err)
			}
		}
	}
}
