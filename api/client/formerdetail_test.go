package client

import (
	"errors"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// TestDetailOfThePreviousReleaseIsRead: the detail of a truncated history is
// read from an error of a node of the previous release, which names the
// detail hostd.entity.v1.EventsCut.
func TestDetailOfThePreviousReleaseIsRead(t *testing.T) {
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("previous.proto"), Package: proto.String("hostd.entity.v1"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("EventsCut"), Field: []*descriptorpb.FieldDescriptorProto{{
			Name: proto.String("first"), Number: proto.Int32(1),
			Type: descriptorpb.FieldDescriptorProto_TYPE_UINT64.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
		}}}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := dynamicpb.NewMessage(file.Messages().Get(0))
	m.Set(file.Messages().Get(0).Fields().Get(0), protoreflect.ValueOfUint64(7))
	detail, err := connect.NewErrorDetail(m)
	if err != nil || detail.Type() != formerTruncated {
		t.Fatal(detail, err)
	}
	wire := connect.NewError(connect.CodeOutOfRange, errors.New("truncated"))
	wire.AddDetail(detail)
	var truncated *TruncatedError
	if err := clientError(wire); !errors.As(err, &truncated) || truncated.First != 7 || CodeOf(err) != CodeOutOfRange {
		t.Errorf("%v, want a TruncatedError with 7 as the first event", err)
	}
}
