package admission

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	journalv1 "github.com/hostd/hostd/api/gen/hostd/journal/v1"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
)

// TestStreamsOutliveTimeouts: in every streaming procedure, the server may send
// for as long as the client reads.
func TestStreamsOutliveTimeouts(t *testing.T) {
	streams := 0
	for _, file := range []protoreflect.FileDescriptor{
		entityv1.File_hostd_entity_v1_entity_proto, modulev1.File_hostd_module_v1_module_proto,
		clusterv1.File_hostd_cluster_v1_cluster_proto, journalv1.File_hostd_journal_v1_journal_proto,
	} {
		service := file.Services().Get(0)
		for i := range service.Methods().Len() {
			m := service.Methods().Get(i)
			if !m.IsStreamingServer() {
				continue
			}
			streams++
			if _, long := longLived["/"+string(service.FullName())+"/"+string(m.Name())]; !long {
				t.Errorf("%s is cut when the server's timeout for answers is over", m.FullName())
			}
		}
	}
	if streams < 10 {
		t.Errorf("%d procedures stream", streams)
	}
}
