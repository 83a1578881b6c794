// What container runtimes make of an image index and of a registry, by the packages that they do it with: containerd's
// matcher and resolver, the chooser of containers/image (CRI-O, podman), and crane. Questions come as JSON on standard
// input, one a line, and so do answers.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/platforms"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	specs "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/types"
)

type question struct {
	// Index: which of its entries a node of this architecture pulls.
	Index        json.RawMessage `json:"index,omitempty"`
	Architecture string          `json:"architecture,omitempty"`
	// Reference: what the registry says of it to this client, "containerd" or "crane".
	Reference string `json:"reference,omitempty"`
	Client    string `json:"client,omitempty"`
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
			found = resolve(asked)
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

func resolve(asked question) answer {
	limited, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if asked.Client == "containerd" {
		digest, err := byContainerd(limited, asked.Reference)
		if err != nil {
			return answer{Error: err.Error()}
		}
		return answer{Containerd: digest}
	}
	parsed, err := name.ParseReference(asked.Reference, name.Insecure)
	if err != nil {
		return answer{Error: err.Error()}
	}
	// crane's own pauses are seconds; what is tried again is the same.
	descriptor, err := remote.Get(parsed, remote.WithContext(limited),
		remote.WithRetryBackoff(remote.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 4}))
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Crane: descriptor.Digest.String()}
}

func byContainerd(limited context.Context, reference string) (string, error) {
	resolver := docker.NewResolver(docker.ResolverOptions{Hosts: docker.ConfigureDefaultRegistries(
		docker.WithPlainHTTP(docker.MatchAllHosts), docker.WithAuthorizer(docker.NewDockerAuthorizer()),
	)})
	named, descriptor, err := resolver.Resolve(limited, reference)
	if err != nil {
		return "", err
	}
	fetcher, err := resolver.Fetcher(limited, named)
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
