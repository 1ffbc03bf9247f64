package replay

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// PatchOp is the kind of an operation.
type PatchOp string

// The operations that JSONPatch produces.
const (
	PatchAdd     PatchOp = "add"
	PatchRemove  PatchOp = "remove"
	PatchReplace PatchOp = "replace"
)

// PatchOperation is one step of a patch. It applies to the result of the
// previous steps.
type PatchOperation struct {
	Op   PatchOp
	Path string // a JSON pointer
	// Was is the old value and Is the new value, as encoding/json decodes them
	// with UseNumber. An add has no Was, a remove has no Is.
	Was, Is any
}

// jsonPatch returns the operations that turn one JSON text into another,
// limited to the number in most. whole is false if more are needed. Two
// numbers are equal if their values are equal. ok is false if one of the
// texts is not JSON.
func jsonPatch(was, is []byte, most int) (patch []PatchOperation, whole, ok bool) {
	a, ok := parse(was)
	if !ok {
		return nil, false, false
	}
	b, ok := parse(is)
	if !ok {
		return nil, false, false
	}
	d := differ{most: most}
	d.values("", a, b)
	return d.patch, !d.more, true
}

func parse(text []byte) (v any, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return v, json.Valid(text) && utf8.Valid(text) && dec.Decode(&v) == nil
}

// differ collects a patch.
type differ struct {
	patch []PatchOperation
	most  int
	more  bool // the patch is incomplete, because most was reached
}

func (d *differ) note(o PatchOperation) {
	if len(d.patch) == d.most {
		d.more = true
		return
	}
	d.patch = append(d.patch, o)
}

// values adds the differences at a path.
func (d *differ) values(path string, was, is any) {
	if d.more {
		return
	}
	switch a := was.(type) {
	case map[string]any:
		if b, ok := is.(map[string]any); ok {
			d.objects(path, a, b)
			return
		}
	case []any:
		if b, ok := is.([]any); ok {
			d.lists(path, a, b)
			return
		}
	}
	if !equal(was, is) {
		d.note(PatchOperation{PatchReplace, path, was, is})
	}
}

var escaper = strings.NewReplacer("~", "~0", "/", "~1")

// objects visits members in the order of their names, so that the patch is
// deterministic.
func (d *differ) objects(path string, was, is map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(was)) {
		at := path + "/" + escaper.Replace(name)
		if now, there := is[name]; there {
			d.values(at, was[name], now)
		} else {
			d.note(PatchOperation{Op: PatchRemove, Path: at, Was: was[name]})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if _, there := was[name]; !there {
			d.note(PatchOperation{Op: PatchAdd, Path: path + "/" + escaper.Replace(name), Is: is[name]})
		}
	}
}

// lists skips the common prefix and suffix. In between it compares values at
// the same index and adds or removes the rest.
func (d *differ) lists(path string, was, is []any) {
	begin := 0
	for begin < min(len(was), len(is)) && equal(was[begin], is[begin]) {
		begin++
	}
	a, b := len(was), len(is)
	for a > begin && b > begin && equal(was[a-1], is[b-1]) {
		a, b = a-1, b-1
	}
	for i := begin; i < min(a, b); i++ {
		d.values(path+"/"+strconv.Itoa(i), was[i], is[i])
	}
	for i := a - 1; i >= b; i-- {
		d.note(PatchOperation{Op: PatchRemove, Path: path + "/" + strconv.Itoa(i), Was: was[i]})
	}
	for i := a; i < b; i++ {
		d.note(PatchOperation{Op: PatchAdd, Path: path + "/" + strconv.Itoa(i), Is: is[i]})
	}
}

func equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, equal)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equal)
	case json.Number:
		b, ok := b.(json.Number)
		return ok && (a == b || sameNumber(a.String(), b.String()))
	}
	return a == b
}

// sameNumber compares two different literals: 1.0 and 1 are equal. Two
// different integers are unequal even if they convert to the same float64,
// except for 0 and -0.
func sameNumber(a, b string) bool {
	if !strings.ContainsAny(a, ".eE") && !strings.ContainsAny(b, ".eE") {
		return strings.TrimPrefix(a, "-") == "0" && strings.TrimPrefix(b, "-") == "0"
	}
	x, err := strconv.ParseFloat(a, 64)
	y, err2 := strconv.ParseFloat(b, 64)
	return err == nil && err2 == nil && x == y
}
