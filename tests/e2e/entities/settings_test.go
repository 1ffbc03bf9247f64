package entities

import (
	"errors"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
)

// put writes a setting; an empty value removes it.
func (n *node) put(key, value string) {
	n.t.Helper()
	if _, err := n.c.PutSetting(n.t.Context(), key, value); err != nil {
		n.t.Fatal(err)
	}
}

// awaitSetting waits until queries of alarms read a value of the setting.
func (n *node) awaitSetting(want string) {
	n.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		r, err := n.c.Query(n.t.Context(), client.Query{EntityType: "alarm", EntityID: "settings", Name: "setting"})
		if err == nil && string(r.Data) == `{"name":"`+want+`"}` {
			return
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("a query reads %s, %v; want %q", r.Data, err, want)
		}
	}
}

// Commands and queries read only the values that operators set for their type.
// The effects of a command stay the same when the value is changed or removed,
// or when the entity is replayed.
func TestGuestsReadSettings(t *testing.T) {
	n := newNode(t)
	n.put("entity.keeper.value.amount", "100")
	rejected := func() {
		t.Helper()
		_, err := n.c.Send(t.Context(), client.Command{EntityType: "alarm", EntityID: "a", Name: "add-setting"})
		var r *client.RejectedError
		if !errors.As(err, &r) || r.Code != "not_set" {
			t.Errorf("without a value: %v", err)
		}
	}
	rejected()
	n.put("entity.alarm.value.other", "7")
	n.put("entity.alarm.value.amount", "3")
	n.awaitSetting("3")
	n.send("a", "add-setting", nil)
	n.put("entity.alarm.value.amount", "4")
	n.awaitSetting("4")
	n.send("a", "add-setting", nil)
	total := func() {
		t.Helper()
		if s, _ := n.state("a"); s.Total != 7 {
			t.Errorf("the total is %v", s.Total)
		}
	}
	total()
	n.put("entity.alarm.value.amount", "")
	n.awaitSetting("")
	total()
	n.stop()
	n.start()
	total()
	rejected()
}

// The total size of a type's values is limited, because each call contains all
// of them.
func TestSettingsOfGuestsAreBounded(t *testing.T) {
	n := newNode(t)
	for _, name := range []string{"a", "b", "c"} {
		n.put("entity.alarm.value."+name, strings.Repeat("x", 1024))
	}
	_, err := n.c.PutSetting(t.Context(), "entity.alarm.value.d", strings.Repeat("x", 1024))
	if client.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "4096") {
		t.Errorf("one too many: %v", err)
	}
	n.put("entity.alarm.value.a", strings.Repeat("y", 1024))
	n.put("entity.keeper.value.d", strings.Repeat("x", 1024))
	n.put("entity.alarm.value.amount", "5")
	n.awaitSetting("5")
	n.send("a", "add-setting", nil)
	if s, _ := n.state("a"); s.Total != 5 {
		t.Errorf("the total is %v", s.Total)
	}
}
