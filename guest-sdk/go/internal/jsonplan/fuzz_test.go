package jsonplan

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"
	"unsafe"
)

// fuzzed has no integer field, because this package also reads integers from
// strings, and no two names that differ only in case.
type fuzzed struct {
	B bool              `json:"b"`
	F float64           `json:"f"`
	S string            `json:"s"`
	X []byte            `json:"x"`
	L []string          `json:"l"`
	M map[string]string `json:"m"`
	N struct {
		S string   `json:"s"`
		P *float32 `json:"p"`
	} `json:"n"`
	T *fuzzed `json:"t"`
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"b":true,"f":-1.5e3,"s":"a\u00e9\ud83d\ude00","x":"AAE=","l":["a",null],"m":{"k":"v"},"n":{"s":"","p":1},"t":{"t":null}}`,
		`{"u":[1,{"z":[]}],"s":"\ud800"}`, `null`, `[]`, `{"s":"` + "\xff" + `"}`, `{"m":{"a":"1","a":"2"}}`,
	} {
		f.Add([]byte(seed))
	}
	plan := planOf[fuzzed](f)
	f.Fuzz(func(t *testing.T, text []byte) {
		var ours fuzzed
		ourError := plan.Decode(text, unsafe.Pointer(&ours))
		if ourError == nil && !json.Valid(text) {
			t.Fatalf("accepted what is not JSON: %q", text)
		}
		if ourError == nil {
			agree(t, ours)
		}
		if !likeForLike(text) {
			return
		}
		var theirs fuzzed
		theirError := json.Unmarshal(text, &theirs)
		if (ourError == nil) != (theirError == nil) {
			t.Fatalf("%q: %v, encoding/json says %v", text, ourError, theirError)
		}
		if ourError == nil && !reflect.DeepEqual(ours, theirs) {
			t.Fatalf("%q: %+v, encoding/json says %+v", text, ours, theirs)
		}
	})
}

// likeForLike returns false for texts with a documented difference: member
// names that match a field only case-insensitively, duplicate names, and a
// nesting depth between this package's limit and the standard library's.
func likeForLike(text []byte) bool {
	if bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) > MaxDepth {
		return false
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	var names []map[string]bool // member names of each open object; nil for a list
	wantName := false
	for {
		token, err := decoder.Token()
		if err != nil {
			return err == io.EOF
		}
		top := len(names) - 1
		switch token := token.(type) {
		case json.Delim:
			switch token {
			case '{':
				names = append(names, map[string]bool{})
			case '[':
				names = append(names, nil)
			default:
				names = names[:top]
			}
			wantName = len(names) > 0 && names[len(names)-1] != nil
		case string:
			if wantName {
				folded := strings.ToLower(strings.ToUpper(token))
				if names[top][folded] || folded != token {
					return false
				}
				names[top][folded] = true
				wantName = false
				continue
			}
			wantName = top >= 0 && names[top] != nil
		default:
			wantName = top >= 0 && names[top] != nil
		}
	}
}

func FuzzStrings(f *testing.F) {
	f.Add("plain", "é\x00\xff", []byte{1, 2})
	plan := planOf[map[string]struct {
		A string
		B []byte
	}](f)
	f.Fuzz(func(t *testing.T, key, text string, raw []byte) {
		value := map[string]struct {
			A string
			B []byte
		}{key: {text, raw}, "other": {}}
		got, err := plan.Append(nil, unsafe.Pointer(&value))
		if want := standard(t, value); err != nil || string(got) != want {
			t.Fatalf("%s %v\nwant %s", got, err, want)
		}
	})
}

func FuzzIntegers(f *testing.F) {
	f.Add(int64(-1), uint64(1), int8(3), 1.5, float32(2))
	type numbers struct {
		A int64
		B uint64
		C int8
		D float64
		E float32
	}
	plan := planOf[numbers](f)
	f.Fuzz(func(t *testing.T, a int64, b uint64, c int8, d float64, e float32) {
		value := numbers{a, b, c, d, e}
		if _, err := json.Marshal(value); err != nil {
			if _, err := plan.Append(nil, unsafe.Pointer(&value)); err == nil {
				t.Fatal("accepted what encoding/json refuses")
			}
			return
		}
		agree(t, value)
	})
}

type flat struct {
	A int64  `json:"a"`
	S string `json:"s"`
	T bool   `json:"t"`
	Z int64  `json:"zed"`
}

// FuzzFlat does the same as FuzzDecode for the structs that decodeFlat decodes.
// Unlike encoding/json, integers in strings are accepted.
func FuzzFlat(f *testing.F) {
	for _, seed := range flatTexts {
		f.Add([]byte(seed))
	}
	plan := planOf[flat](f)
	f.Fuzz(func(t *testing.T, text []byte) {
		var ours, theirs flat
		ourError := plan.Decode(text, unsafe.Pointer(&ours))
		if ourError == nil && !json.Valid(text) {
			t.Fatalf("accepted what is not JSON: %q", text)
		}
		theirError := json.Unmarshal(text, &theirs)
		if !likeForLike(text) || ourError == nil && theirError != nil {
			return
		}
		if (ourError == nil) != (theirError == nil) || ourError == nil && ours != theirs {
			t.Fatalf("%q: %+v %v, encoding/json says %+v %v", text, ours, ourError, theirs, theirError)
		}
	})
}

var flatTexts = []string{
	`{}`, `{"a":1}`, `{"a":-1,"s":"x","t":true,"zed":9}`, `{"s":"","zed":0}`, `{"t":false}`, `{"zed":1,"a":2}`, `{"a":1,"a":2}`, `{"a":1,"u":2}`,
	`{"a":01}`, `{"a":-}`, `{"a":--1}`, `{"a":-0}`, `{"a":00}`, `{"a":999999999999999999}`, `{"a":9999999999999999999}`, `{"a":-9223372036854775808}`,
	`{"a":1`, `{"a":`, `{"a":1,`, `{"a":1,}`, `{"a":1}x`, `{"a":1} `, `{"a":null}`, `{"a":1,"s":null,"zed":3}`, `{"a" :1}`, `{"a": 1}`,
	`{"s":"a`, `{"s":"a"`, `{"s":"a\n"}`, `{"s":"é"}`, `{"s":"` + "\x01" + `"}`, `{"s":"12345678"}`, `{"s":"1234567\"8"}`, `{"s":"12345678` + "\x7f" + `9"}`, `{"s":1}`,
	`{"t":true`, `{"t":tru}`, `{"t":truex}`, `{"t":false,"zed":1}`, `{"t":1}`, `{`, `}`, `{x`, `{"a":1,"t":true,"s":"late"}`, `{"":1}`, `{"s":"x","s":"y"}`,
}
