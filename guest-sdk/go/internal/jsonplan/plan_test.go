package jsonplan

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"net/netip"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"
)

type (
	inner struct {
		Name  string `json:"name"`
		Count int32  `json:"count,omitempty"`
	}
	Base  struct{ Shared, Hidden int }
	tree  struct{ Left, Right *tree }
	label string
	all   struct {
		Bool    bool
		Int     int
		I8      int8 `json:"i8"`
		I16     int16
		I32     int32
		I64     int64
		Uint    uint
		U8      uint8
		U16     uint16
		U32     uint32
		U64     uint64
		F32     float32
		F64     float64
		String  string
		Label   label
		Bytes   []byte
		Strings []string
		Inners  []inner
		Array   [3]int16
		Nested  [][]uint8
		Map     map[string]inner
		Labels  map[label][]int
		Inner   inner
		Pointer *inner
		Twice   **int
		Base
		Hidden  string
		Tree    tree
		Time    time.Time
		Address netip.Addr
		When    *time.Time `json:",omitempty"`
		Odd     int        `json:"odd-name é"`
		Skipped chan int   `json:"-"`
		secret  int        `json:"-"` //nolint:govet // the plan must skip it
	}
	omitted struct {
		Bool   bool           `json:"bool,omitempty"`
		Int    int            `json:"int,omitempty"`
		I8     int8           `json:"i8,omitempty"`
		U16    uint16         `json:"u16,omitempty"`
		I32    int32          `json:"i32,omitempty"`
		U64    uint64         `json:"u64,omitempty"`
		F32    float32        `json:"f32,omitempty"`
		F64    float64        `json:"f64,omitempty"`
		String string         `json:"string,omitempty"`
		Slice  []int          `json:"slice,omitempty"`
		Bytes  []byte         `json:"bytes,omitempty"`
		Map    map[string]int `json:"map,omitempty"`
		Ptr    *int           `json:"ptr,omitempty"`
		Array  [0]int         `json:"array,omitempty"`
		Struct struct{}       `json:"struct,omitempty"`
		Time   time.Time      `json:"time,omitempty"`
	}
)

func planOf[T any](t testing.TB) *Plan {
	t.Helper()
	p, err := For(reflect.TypeFor[T]())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// standard returns encoding/json's text with HTML escaping off.
func standard(t testing.TB, value any) string {
	t.Helper()
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(buffer.String(), "\n")
}

// agree checks that value is encoded and decoded in the same way as by
// encoding/json.
func agree[T any](t *testing.T, value T) {
	t.Helper()
	plan := planOf[T](t)
	want := standard(t, &value)
	got, err := plan.Append(nil, unsafe.Pointer(&value))
	if err != nil || string(got) != want {
		t.Fatalf("wrote %s (%v)\nwant  %s", got, err, want)
	}
	var ours, theirs T
	if err := plan.Decode(got, unsafe.Pointer(&ours)); err != nil {
		t.Fatalf("%s: %v", got, err)
	}
	if err := json.Unmarshal(got, &theirs); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(ours, theirs) {
		t.Fatalf("%s\nread %+v\nwant %+v", got, ours, theirs)
	}
}

func full() all {
	five := 5
	pointer := &five
	now := time.Date(2026, 2, 3, 4, 5, 6, 789, time.UTC)
	return all{
		Bool: true, Int: math.MinInt, I8: math.MinInt8, I16: math.MaxInt16, I32: math.MinInt32, I64: math.MaxInt64,
		Uint: math.MaxUint, U8: 255, U16: 65535, U32: math.MaxUint32, U64: math.MaxUint64, F32: 1.1, F64: -1e-7,
		String: "a\"b\\c/\b\f\n\r\t\x00\x1f\x7f<>&é世😀\u2028\u2029\ufffd", Label: "l", Bytes: []byte{0, 255, 1},
		Strings: []string{"", "x"}, Inners: []inner{{"a", 1}, {"b", 0}}, Array: [3]int16{1, 2, 3},
		Nested: [][]uint8{{1}, {}, nil}, Map: map[string]inner{"z": {"1", 1}, "a": {"2", 0}, "": {}, "é\n": {}},
		Labels: map[label][]int{"b": {1}, "a": nil}, Inner: inner{"i", -1}, Pointer: &inner{"p", 9}, Twice: &pointer,
		Base: Base{Shared: 1, Hidden: 2}, Hidden: "top", Tree: tree{Left: &tree{Right: &tree{}}},
		Time: now, Address: netip.MustParseAddr("::1"), When: &now, Odd: 3,
	}
}

func TestMatchesStandardLibrary(t *testing.T) {
	agree(t, full())
	agree(t, all{})
	agree(t, omitted{})
	one := 1
	agree(t, omitted{true, 1, 1, 1, 1, 1, 1, 1, "s", []int{1}, []byte{1}, map[string]int{"a": 1}, &one, [0]int{}, struct{}{}, time.Unix(0, 0).UTC()})
	agree(t, omitted{Slice: []int{}, Bytes: []byte{}, Map: map[string]int{}})
	agree(t, struct{}{})
	agree(t, "plain")
	agree(t, "not \xff UTF-8 \xe2\x82 \xed\xa0\x80")
	agree(t, []string(nil))
	agree(t, map[string]*inner{"nil": nil, "one": {}})
	agree(t, []map[string][]float64{{"a": {1, 2.5}}, nil, {}})
	agree(t, [2][2]bool{{true, false}, {false, true}})
	for _, f := range []float64{0, math.Copysign(0, -1), 1, -1, 0.1, 1e20, 1e21, 1e-6, 1e-7, 123456789.123, math.MaxFloat64, math.SmallestNonzeroFloat64, 1 << 53} {
		agree(t, f)
		agree(t, -f)
		if float32(f) == float32(f) && !math.IsInf(float64(float32(f)), 0) {
			agree(t, float32(f))
		}
	}
}

// TestAcceptsAndRejectsLikeStandardLibrary decodes the same texts into the same
// types with this package and with encoding/json, which must accept and reject
// the same texts.
func TestAcceptsAndRejectsLikeStandardLibrary(t *testing.T) {
	texts := []string{
		``, ` `, `null`, `true`, `false`, `tru`, `nul`, `nullx`, `0`, `-0`, `-`, `01`, `1.`, `.1`, `1e`, `1e+`, `1E-2`, `1.5`, `+1`, `1 2`,
		`127`, `128`, `-128`, `-129`, `255`, `256`, `32767`, `32768`, `65536`, `2147483647`, `2147483648`, `-2147483648`, `-2147483649`,
		`9223372036854775807`, `9223372036854775808`, `-9223372036854775808`, `-9223372036854775809`, `18446744073709551615`,
		`18446744073709551616`, `99999999999999999999`, `184467440737095516150`, `1e400`, `3.5e38`, `1e-400`, `0x10`, `NaN`, `Infinity`,
		`""`, `"a"`, `"`, `"a`, `"\`, `"\"`, `"\x"`, `"\u12"`, `"\u12g4"`, `"\u0041\u00e9"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ud83dx"`,
		`"\ud83d\u0041"`, `"\ude00\ud83d"`, `"\ud83d\ud83d\ude00"`, "\"\x01\"", "\"a\nb\"", "\"\xff\"", "\"é\xe2\x82\"", `"\/\b\f\n\r\t\"\\"`, "\"\x7f\"", `'a'`,
		`[]`, `[ ]`, `[1]`, `[1,2,3,4,5]`, `[1,]`, `[,1]`, `[1 2]`, `[1`, `[`, `]`, `[null,1]`, `["a","b"]`, `[[1],[2]]`, `[{"name":"a"},{}]`, `"AAE="`, `"AA"`, `"A\nA=="`, `"AA=="`, `"!!!!"`,
		`{}`, `{ }`, `{"a":1}`, `{"a":1,"b":2}`, `{"a":1,}`, `{,}`, `{"a"}`, `{"a":}`, `{"a" 1}`, `{a:1}`, `{"a":1 "b":2}`, `{"a":1`, `{"a"`, `{`, `}`, `{"a":null}`, `{"":0}`,
		"\t{\r\n \"name\" : \"x\" , \"count\" : 3 } ", `{"name":"\u0041","\u0063ount":7}`, `{"unknown":{"deep":[1,{"x":"\""}]},"name":"k"}`, `{"unknown":[1,}`, `{"unknown":"\q"}`, `{"unknown":01}`,
		`{"name":null,"count":null}`, `{"name":1}`, `{"count":"x"}`, `{"count":true}`, `{"name":["x"]}`, `{} x`, `{}}`, "\ufeff{}", `/**/1`,
		`{"Left":{"Right":{}},"Right":null}`, strings.Repeat("[", 400) + strings.Repeat("]", 400), `"2026-02-03T04:05:06Z"`, `"2026-02-03"`,
	}
	for _, text := range texts {
		same[bool](t, text)
		same[int8](t, text)
		same[int16](t, text)
		same[int32](t, text)
		same[int64](t, text)
		same[uint8](t, text)
		same[uint32](t, text)
		same[uint64](t, text)
		same[float32](t, text)
		same[float64](t, text)
		same[string](t, text)
		same[[]byte](t, text)
		same[[]int](t, text)
		same[[3]int](t, text)
		same[[]string](t, text)
		same[[][]int](t, text)
		same[[]inner](t, text)
		same[map[string]int](t, text)
		same[map[string]string](t, text)
		same[inner](t, text)
		same[flat](t, text)
		same[*inner](t, text)
		same[**int](t, text)
		same[tree](t, text)
		same[time.Time](t, text)
		same[netip.Addr](t, text)
	}
}

// same decodes text with this package and with encoding/json. Callers must not
// pass integers in quotes, or integers written with a fraction or an exponent,
// because this package accepts them on purpose.
func same[T any](t *testing.T, text string) {
	t.Helper()
	var ours, theirs T
	ourError := planOf[T](t).Decode([]byte(text), unsafe.Pointer(&ours))
	theirError := json.Unmarshal([]byte(text), &theirs)
	if (ourError == nil) != (theirError == nil) {
		t.Errorf("%T from %.80q: %v, encoding/json says %v", ours, text, ourError, theirError)
		return
	}
	var syntax *SyntaxError
	if ourError != nil && !errors.As(ourError, &syntax) {
		t.Errorf("%T from %.80q: %T is not a *SyntaxError", ours, text, ourError)
	}
	if ourError == nil && !reflect.DeepEqual(ours, theirs) {
		t.Errorf("%T from %.80q: %#v, encoding/json says %#v", ours, text, ours, theirs)
	}
}

// TestFlatStructs compares the fast path with the standard library and with the
// general path.
func TestFlatStructs(t *testing.T) {
	plan := planOf[flat](t)
	for _, text := range flatTexts {
		same[flat](t, text)
		var short, long flat
		shortError := plan.Decode([]byte(text), unsafe.Pointer(&short))
		longError := plan.Decode([]byte(" "+text), unsafe.Pointer(&long))
		if (shortError == nil) != (longError == nil) || shortError == nil && short != long {
			t.Errorf("%q: %+v %v, by the long path %+v %v", text, short, shortError, long, longError)
		}
	}
	for _, text := range flatTexts[:4] {
		if !plan.root.decodeFlat([]byte(text), unsafe.Pointer(&flat{})) {
			t.Errorf("%s took the long path", text)
		}
	}
}

func TestIntegersAsStrings(t *testing.T) {
	plan := planOf[struct{ N int64 }](t)
	for text, want := range map[string]int64{
		`{"N":"9007199254740993"}`: 9007199254740993, `{"N":"-9223372036854775808"}`: math.MinInt64, `{"N":"0"}`: 0,
	} {
		var got struct{ N int64 }
		if err := plan.Decode([]byte(text), unsafe.Pointer(&got)); err != nil || got.N != want {
			t.Errorf("%s: %d %v", text, got.N, err)
		}
	}
	for _, text := range []string{`{"N":""}`, `{"N":" 1"}`, `{"N":"1 "}`, `{"N":"1.5"}`, `{"N":"01"}`, `{"N":"9223372036854775808"}`, `{"N":"\u0031"}`, `{"N":"1`} {
		var got struct{ N int64 }
		if err := plan.Decode([]byte(text), unsafe.Pointer(&got)); err == nil {
			t.Errorf("%s was accepted as %d", text, got.N)
		}
	}
}

// TestCornerCasesOfNumbers checks that a guest receives all digits of integers
// in any notation. It uses the same cases as the tests of a node's API.
func TestCornerCasesOfNumbers(t *testing.T) {
	cases, err := os.ReadFile("../../../../abi/jsontext/testdata/cases.txt")
	if err != nil {
		t.Fatal(err)
	}
	signed, unsigned, double := planOf[int64](t), planOf[uint64](t), planOf[float64](t)
	for line := range strings.Lines(string(cases)) {
		in, want, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " => ")
		if !ok || in[0] != '-' && (in[0] < '0' || in[0] > '9') || in == "1 2" || in == "1e-400" {
			continue
		}
		var f float64
		if err := double.Decode([]byte(in), unsafe.Pointer(&f)); (err == nil) != (want != "refused") {
			t.Errorf("float64 of %s: %v", in, err)
		}
		var i int64
		wanted, err := strconv.ParseInt(want, 10, 64)
		if is := signed.Decode([]byte(in), unsafe.Pointer(&i)) == nil; is != (err == nil) || is && i != wanted {
			t.Errorf("int64 of %s: %d, %v, want %s", in, i, is, want)
		}
		var u uint64
		wantedUnsigned, err := strconv.ParseUint(want, 10, 64)
		if is := unsigned.Decode([]byte(in), unsafe.Pointer(&u)) == nil; want != "0" && (is != (err == nil) || is && u != wantedUnsigned) {
			t.Errorf("uint64 of %s: %d, %v, want %s", in, u, is, want)
		}
	}
}

func TestLastDuplicateMemberWins(t *testing.T) {
	var got struct {
		A []int
		B map[string]int
		C *inner
	}
	text := `{"A":[1,2,3],"B":{"x":1},"C":{"name":"a","count":1},"A":[9],"B":{"y":2},"C":{"name":"b"}}`
	if err := planOf[struct {
		A []int
		B map[string]int
		C *inner
	}](t).Decode([]byte(text), unsafe.Pointer(&got)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.A, []int{9}) || !reflect.DeepEqual(got.B, map[string]int{"y": 2}) || *got.C != (inner{"b", 0}) {
		t.Errorf("%+v %+v", got, *got.C)
	}
}

func TestDecodedValueDoesNotAliasInput(t *testing.T) {
	text := []byte(`{"name":"abc","Map":{"key":"value"},"raw":"AAE="}`)
	var got struct {
		Name string `json:"name"`
		Map  map[string]string
		Raw  []byte `json:"raw"`
	}
	plan, err := For(reflect.TypeOf(got))
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Decode(text, unsafe.Pointer(&got)); err != nil {
		t.Fatal(err)
	}
	clear(text)
	if got.Name != "abc" || got.Map["key"] != "value" || !bytes.Equal(got.Raw, []byte{0, 1}) {
		t.Errorf("%+v", got)
	}
}

func TestManyFieldsAreFoundByName(t *testing.T) {
	value := full()
	text := standard(t, &value)
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &members); err != nil {
		t.Fatal(err)
	}
	shuffled, err := json.Marshal(members) // sorted, so not in the order of the fields
	if err != nil {
		t.Fatal(err)
	}
	var ours, theirs all
	if err := planOf[all](t).Decode(shuffled, unsafe.Pointer(&ours)); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(shuffled, &theirs); err != nil || !reflect.DeepEqual(ours, theirs) {
		t.Errorf("%v\n%+v\n%+v", err, ours, theirs)
	}
}

func TestDepthIsBounded(t *testing.T) {
	var loop tree
	loop.Left = &loop
	if _, err := planOf[tree](t).Append(nil, unsafe.Pointer(&loop)); !errors.Is(err, ErrDepth) {
		t.Errorf("a cycle: %v", err)
	}
	for _, n := range []int{MaxDepth, MaxDepth + 1} {
		var ignored struct{}
		text := `{"x":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`
		if err := planOf[struct{}](t).Decode([]byte(text), unsafe.Pointer(&ignored)); (err != nil) != (n > MaxDepth) {
			t.Errorf("depth %d: %v", n, err)
		}
	}
}

func TestNonFiniteNumbersAreRejected(t *testing.T) {
	for _, f := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if _, err := planOf[[]float64](t).Append(nil, unsafe.Pointer(&[]float64{f})); !errors.Is(err, ErrNotFinite) {
			t.Errorf("%v: %v", f, err)
		}
	}
}

type (
	writesOnly struct{}
	readsOnly  struct{}
	textKey    string
	loose      struct{ text string }
)

func (writesOnly) MarshalJSON() ([]byte, error) { return nil, nil }
func (*readsOnly) UnmarshalText([]byte) error   { return nil }
func (*textKey) UnmarshalText([]byte) error     { return nil }

func (l loose) MarshalJSON() ([]byte, error)     { return []byte(l.text), nil }
func (l *loose) UnmarshalJSON(text []byte) error { l.text = string(text); return nil }

func TestTypesThatCannotBeJSON(t *testing.T) {
	for want, typ := range map[string]reflect.Type{
		"jsonplan.hidden.secret: is not exported":              reflect.TypeFor[hidden](),
		"[]chan int[]: a chan int cannot":                      reflect.TypeFor[[]chan int](),
		"struct { F func() }.F: a func() cannot":               reflect.TypeFor[struct{ F func() }](),
		"struct { A interface {} }.A: a interface {} cannot":   reflect.TypeFor[struct{ A any }](),
		"complex128: a complex128 cannot":                      reflect.TypeFor[complex128](),
		"map[int]string: map keys must be strings":             reflect.TypeFor[map[int]string](),
		"map[jsonplan.textKey]int: map keys with":              reflect.TypeFor[map[textKey]int](),
		"jsonplan.writesOnly has MarshalJSON without":          reflect.TypeFor[writesOnly](),
		"jsonplan.readsOnly has UnmarshalText without":         reflect.TypeFor[[]readsOnly](),
		".N: json option string is not supported":              reflect.TypeFor[quotedField](),
		".A: a json name cannot contain":                       reflect.TypeFor[quoteField](),
		".B: the name A is duplicated":                         reflect.TypeFor[twiceField](),
		"pointerField.Base: an embedded pointer is not":        reflect.TypeFor[pointerField](),
		"map[string][]*jsonplan.hidden[][].secret: is not exp": reflect.TypeFor[map[string][]*hidden](),
	} {
		if _, err := For(typ); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", typ, err, want)
		}
	}
}

type (
	//lint:ignore U1000 an unexported field is what is refused
	hidden      struct{ secret int }
	quotedField struct {
		N int `json:",string"` //nolint:staticcheck // rejected on purpose
	}
	quoteField struct {
		//lint:ignore SA5008 a malformed tag is what is refused
		A int `json:"a\"b"`
	}
	twiceField struct {
		A int
		B int `json:"A"`
	}
	pointerField struct{ *Base }
)

func TestMarshalMethodsMustWriteJSON(t *testing.T) {
	plan := planOf[[]loose](t)
	good := []loose{{" { \"a b\" : [ 1 , \"\\\" \" ] } "}}
	got, err := plan.Append(nil, unsafe.Pointer(&good))
	if want := `[{"a b":[1,"\" "]}]`; err != nil || string(got) != want {
		t.Errorf("%s %v, want %s", got, err, want)
	}
	for _, text := range []string{"", "{", "1 2", `"\`, "nope"} {
		if _, err := plan.Append(nil, unsafe.Pointer(&[]loose{{text}})); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}
