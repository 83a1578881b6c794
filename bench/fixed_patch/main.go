// A webhook that knows everything: it answers each pod with the same patch, and decides nothing.
//
// It is the control of the warm burst (python -m bench warm): what a webhook in Go costs the API server and itself if it
// writes what polyarch writes for a pod of known images. The patch fits the pods of bench/load.py and no others.
// It prints the port that it listens on.
package main

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
)

const patch = `[
{"op":"add","path":"/metadata/labels/multiarch.openshift.io~1scheduling-gate","value":"removed"},
{"op":"add","path":"/metadata/labels/multiarch.openshift.io~1node-affinity","value":"set"},
{"op":"add","path":"/metadata/labels/multiarch.openshift.io~1multi-arch","value":""},
{"op":"add","path":"/metadata/labels/multiarch.openshift.io~1amd64","value":""},
{"op":"add","path":"/metadata/labels/multiarch.openshift.io~1arm64","value":""},
{"op":"add","path":"/metadata/annotations","value":{"polyarch.dev/placement-decision":"{\"arch\":[\"amd64\",\"arm64\"],\"by\":\"admission\",\"created\":true,\"images\":{\"quay.io/warm/app1:1\":\"0123456789ab\"},\"mode\":\"enforce\",\"preferred\":[],\"reason\":\"ArchitecturesSet\",\"terms\":[0],\"v\":1}"}},
{"op":"add","path":"/spec/affinity","value":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"kubernetes.io/arch","operator":"In","values":["amd64","arm64"]}]}]}}}}
]`

type request struct {
	UID    string `json:"uid"`
	Object struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	} `json:"object"`
}

type review struct {
	Request request `json:"request"`
}

func main() {
	encoded := base64.StdEncoding.EncodeToString([]byte(patch))
	handle := func(writer http.ResponseWriter, incoming *http.Request) {
		body, err := io.ReadAll(incoming.Body)
		var asked review
		if err == nil {
			err = json.Unmarshal(body, &asked)
		}
		if err != nil {
			http.Error(writer, err.Error(), http.StatusBadRequest)
			return
		}
		response := map[string]any{"uid": asked.Request.UID, "allowed": true}
		if asked.Request.Object.Metadata.Annotations == nil { // not in the second round of an admission
			response["patchType"] = "JSONPatch"
			response["patch"] = encoded
		}
		writer.Header().Set("Content-Type", "application/json")
		answer := map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
		if err := json.NewEncoder(writer).Encode(answer); err != nil {
			log.Print(err)
		}
	}
	certificate, err := tls.LoadX509KeyPair(os.Args[1], os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	// HTTP/1.1 alone, as polyarch serves it; the empty map keeps Go from offering HTTP/2.
	server := http.Server{
		Handler:      http.HandlerFunc(handle),
		TLSConfig:    &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	log.Fatal(server.ServeTLS(listener, "", ""))
}
