package cli

import (
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
)

func TestViewHasEveryField(t *testing.T) {
	at := timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC))
	for _, tt := range []struct {
		message proto.Message
		want    string
	}{
		{&clusterv1.Setting{Value: "<a>", Revision: math.MaxUint64}, `{"key":"","value":"<a>","revision":18446744073709551615}`},
		{&clusterv1.ListSettingsResponse{Settings: []*clusterv1.Setting{{Key: "k"}}}, `{"settings":[{"key":"k","value":"","revision":0}],"revision":0,"nextPageToken":""}`},
		{&clusterv1.ListSettingsResponse{}, `{"settings":[],"revision":0,"nextPageToken":""}`},
		{&entityv1.OperatorAction{Kind: "cleared", RecordedAt: at}, `{"kind":"cleared","timer":"","commandId":"","recordedAt":"2026-01-02T03:04:05.000000006Z","sequence":0}`},
		{&entityv1.OperatorAction{}, `{"kind":"","timer":"","commandId":"","sequence":0}`},
		{&entityv1.GetStateResponse{Payload: &entityv1.GetStateResponse_Data{Data: []byte{0, 255}}}, `{"data":"AP8=","sequence":0,"moduleDigest":"","deleted":false}`},
		{&entityv1.GetStateResponse{Payload: &entityv1.GetStateResponse_Json{Json: structpb.NewBoolValue(true)}}, `{"json":true,"sequence":0,"moduleDigest":"","deleted":false}`},
		{&clusterv1.RemoveNodeResponse{}, `{}`},
	} {
		var out strings.Builder
		if err := WriteJSON(&out, tt.message, ""); err != nil || out.String() != tt.want+"\n" {
			t.Errorf("got %s, %v\nwant %s", out.String(), err, tt.want)
		}
	}
	o := View(&clusterv1.Setting{}).Set("value", []string{"a"}).Set("more", 1)
	var out strings.Builder
	if err := WriteJSON(&out, o, ""); err != nil || out.String() != `{"key":"","value":["a"],"revision":0,"more":1}`+"\n" {
		t.Errorf("got %s, %v", out.String(), err)
	}
}
