// What container runtimes make of an image index and of a registry, by the packages that they do it with: containerd's
// matcher and resolver, the chooser of containers/image (CRI-O, podman), and crane. Questions come as JSON on standard
// input, one a line, and so do answers.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/platforms"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	specs "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/types"
)

type question struct {
	// Index: which of its entries a node of this architecture pulls.
	Index        json.RawMessage `json:"index,omitempty"`
	Architecture string          `json:"architecture,omitempty"`
	// Reference: what the registry says of it.
	Reference string `json:"reference,omitempty"`
}

type answer struct {
	Containerd string `json:"containerd"`
	Crio       string `json:"crio"`
	Crane      string `json:"crane"`
	Error      string `json:"error,omitempty"`
}

func main() {
	questions, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for questions.More() {
		var asked question
		if err := questions.Decode(&asked); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		found := answer{}
		if asked.Reference != "" {
			found = resolve(asked.Reference)
		} else {
			found = choose(asked)
		}
		if err := answers.Encode(found); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
}

// The digests that a linux node of this architecture pulls; empty: none. The node's own platform is that which
// platforms.DefaultSpec finds on such a machine.
func choose(asked question) answer {
	found := answer{}
	node := specs.Platform{OS: "linux", Architecture: asked.Architecture}
	switch asked.Architecture {
	case "arm64":
		node.Variant = "v8"
	case "arm":
		node.Variant = "v7"
	}
	var index specs.Index
	if err := json.Unmarshal(asked.Index, &index); err != nil {
		return answer{Error: err.Error()}
	}
	matcher := platforms.Only(node)
	var best *specs.Descriptor
	for at := range index.Manifests {
		entry := &index.Manifests[at]
		if entry.Platform == nil || !matcher.Match(*entry.Platform) {
			continue
		}
		if best == nil || matcher.Less(*entry.Platform, *best.Platform) {
			best = entry
		}
	}
	if best != nil {
		found.Containerd = best.Digest.String()
	}
	list, err := manifest.ListFromBlob(asked.Index, specs.MediaTypeImageIndex)
	if err != nil {
		return answer{Error: err.Error()}
	}
	chosen, err := list.ChooseInstance(&types.SystemContext{
		OSChoice: "linux", ArchitectureChoice: asked.Architecture, VariantChoice: node.Variant,
	})
	if err == nil {
		found.Crio = chosen.String()
	}
	return found
}

func resolve(reference string) answer {
	found := answer{}
	limited, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	plain := docker.WithPlainHTTP(docker.MatchAllHosts)
	resolver := docker.NewResolver(docker.ResolverOptions{Hosts: docker.ConfigureDefaultRegistries(
		plain, docker.WithAuthorizer(docker.NewDockerAuthorizer()),
	)})
	if digest, err := byContainerd(limited, resolver, reference); err == nil {
		found.Containerd = digest
	} else {
		found.Error = err.Error()
	}
	parsed, err := name.ParseReference(reference, name.Insecure)
	if err != nil {
		return answer{Error: err.Error()}
	}
	// crane's own pauses are seconds; what is tried again is the same.
	descriptor, err := remote.Get(parsed, remote.WithContext(limited),
		remote.WithRetryBackoff(remote.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 4}),
		remote.WithTransport(transport.NewRetry(http.DefaultTransport.(*http.Transport).Clone(),
			transport.WithRetryBackoff(remote.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 4}),
			transport.WithRetryStatusCodes(http.StatusRequestTimeout, 499, http.StatusInternalServerError,
				http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, 522))))
	if err == nil {
		found.Crane = descriptor.Digest.String()
	}
	return found
}

func byContainerd(limited context.Context, resolver interface {
	Resolve(context.Context, string) (string, specs.Descriptor, error)
}, reference string) (string, error) {
	named, descriptor, err := resolver.Resolve(limited, reference)
	if err != nil {
		return "", err
	}
	fetcher, err := docker.NewResolver(docker.ResolverOptions{Hosts: docker.ConfigureDefaultRegistries(
		docker.WithPlainHTTP(docker.MatchAllHosts), docker.WithAuthorizer(docker.NewDockerAuthorizer()),
	)}).Fetcher(limited, named)
	if err != nil {
		return "", err
	}
	body, err := fetcher.Fetch(limited, descriptor)
	if err != nil {
		return "", err
	}
	defer body.Close()
	if _, err := io.Copy(io.Discard, body); err != nil {
		return "", err
	}
	return descriptor.Digest.String(), nil
}
