// podresources-server is a kubelet's podresources API with Kubernetes' own types and gRPC: it serves what is in a
// directory of JSON files, read anew for each call, over a socket, as a kubelet would.
package main

import (
	"context"
	"errors"
	"flag"
	"io/fs"
	"log"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

var (
	socket  = flag.String("socket", "", "path of the socket; one that is there is replaced")
	answers = flag.String("answers", "", "directory with list.json, get_allocatable_resources.json, get.json")
	noGet   = flag.Bool("no-get", false, "answer Get as a kubelet that does not know it")
	unknown = flag.Bool("unknown", false, "add a field that no version of the API has to every answer and pod")
	hold    = flag.Duration("hold", 0, "wait so long before an answer; log the call first")
)

type server struct {
	podresources.UnimplementedPodResourcesListerServer
}

func (server) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	answer := &podresources.ListPodResourcesResponse{}
	if err := read("list", answer); err != nil {
		return nil, err
	}
	for _, pod := range answer.PodResources {
		extend(pod)
	}
	return answer, nil
}

func (server) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	answer := &podresources.AllocatableResourcesResponse{}
	return answer, read("get_allocatable_resources", answer)
}

func (s server) Get(ctx context.Context, request *podresources.GetPodResourcesRequest) (*podresources.GetPodResourcesResponse, error) {
	if *noGet {
		return s.UnimplementedPodResourcesListerServer.Get(ctx, request)
	}
	answer := &podresources.GetPodResourcesResponse{}
	return answer, read("get", answer)
}

// read fills an answer; without a file it stays empty.
func read(name string, answer proto.Message) error {
	log.Printf("call %s", name)
	time.Sleep(*hold)
	text, err := os.ReadFile(filepath.Join(*answers, name+".json"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil {
		if err := protojson.Unmarshal(text, answer); err != nil {
			return err
		}
	}
	extend(answer)
	return nil
}

func extend(message proto.Message) {
	if *unknown {
		field := protowire.AppendTag(nil, 1000, protowire.BytesType)
		message.ProtoReflect().SetUnknown(protowire.AppendString(field, "from the future"))
	}
}

func main() {
	flag.Parse()
	if err := os.Remove(*socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Fatal(err)
	}
	listener, err := net.Listen("unix", *socket)
	if err != nil {
		log.Fatal(err)
	}
	listen := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(listen, server{})
	log.Printf("listening")
	log.Fatal(listen.Serve(listener))
}
