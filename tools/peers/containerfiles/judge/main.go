// What builders make of a Containerfile, by the packages that they do it with: BuildKit's frontend, which says what it
// would pull and for which platform, and imagebuilder, which is buildah's parser. Questions come as JSON on standard
// input, one a line, and so do answers.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"

	"github.com/containerd/platforms"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
	"github.com/moby/buildkit/frontend/dockerui"
	"github.com/moby/buildkit/solver/pb"
	"github.com/moby/buildkit/util/apicaps"
	digest "github.com/opencontainers/go-digest"
	ocispecs "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/openshift/imagebuilder"
)

type question struct {
	// Text: a Containerfile, built for linux/Architecture on a node of that architecture.
	Text         string            `json:"text"`
	Architecture string            `json:"architecture"`
	Args         map[string]string `json:"args"`
	Target       string            `json:"target"`
	// Word: a text whose variables are replaced by the values in Args.
	Word string `json:"word"`
}

type answer struct {
	Buildkit     verdict `json:"buildkit"`
	Imagebuilder verdict `json:"imagebuilder"`
	Word         string  `json:"word"`
	Error        string  `json:"error,omitempty"`
}

type verdict struct {
	// Pulled: "PLATFORM REFERENCE" of BuildKit; of imagebuilder the bases of its stages.
	Pulled []string `json:"pulled"`
	// Statements: name of each instruction with the number of its here-documents, "RUN 2".
	Statements []string `json:"statements"`
	Error      string   `json:"error,omitempty"`
	// Parsed is false where the text cannot even be told into statements.
	Parsed bool `json:"parsed"`
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
		if asked.Text == "" {
			found.Word, found.Error = expand(asked)
		} else {
			found.Buildkit, found.Imagebuilder = byBuildkit(asked), byImagebuilder(asked)
		}
		if err := answers.Encode(found); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
}

func expand(asked question) (string, string) {
	var env []string
	for name, value := range asked.Args {
		env = append(env, name+"="+value)
	}
	found, _, err := shell.NewLex('\\').ProcessWord(asked.Word, shell.EnvsFromSlice(env))
	if err != nil {
		return "", err.Error()
	}
	return found, ""
}

// resolver has every image, for every platform.
type resolver struct {
	sync.Mutex
	pulled map[string]bool
}

func (r *resolver) ResolveImageConfig(
	_ context.Context, ref string, opt sourceresolver.Opt,
) (string, digest.Digest, []byte, error) {
	platform := platforms.DefaultSpec()
	if opt.ImageOpt != nil && opt.ImageOpt.Platform != nil {
		platform = *opt.ImageOpt.Platform
	}
	r.Lock()
	r.pulled[platforms.Format(platforms.Normalize(platform))+" "+ref] = true
	r.Unlock()
	config, err := json.Marshal(ocispecs.Image{
		Platform: platform,
		RootFS:   ocispecs.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromString(ref)}},
	})
	return ref, digest.FromString(ref), config, err
}

func byBuildkit(asked question) (found verdict) {
	defer recovered(&found)
	result, err := parser.Parse(strings.NewReader(asked.Text))
	if err != nil {
		found.Error = err.Error()
		return found
	}
	found.Parsed = true
	for _, child := range result.AST.Children {
		found.Statements = append(found.Statements, statement(child.Value, len(child.Heredocs)))
	}
	platform := platforms.Normalize(ocispecs.Platform{OS: "linux", Architecture: asked.Architecture})
	images := &resolver{pulled: map[string]bool{}}
	caps := pb.Caps.CapSet(pb.Caps.All())
	_, err = dockerfile2llb.Dockerfile2LLB(context.Background(), []byte(asked.Text), dockerfile2llb.ConvertOpt{
		Config: dockerui.Config{
			BuildArgs: asked.Args, Target: asked.Target, BuildPlatforms: []ocispecs.Platform{platform},
		},
		TargetPlatform: &platform,
		MetaResolver:   images,
		LLBCaps:        capabilities(caps),
	})
	if err != nil {
		found.Error = err.Error()
	}
	for each := range images.pulled {
		found.Pulled = append(found.Pulled, each)
	}
	sort.Strings(found.Pulled)
	return found
}

func capabilities(set apicaps.CapSet) *apicaps.CapSet { return &set }

func byImagebuilder(asked question) (found verdict) {
	defer recovered(&found)
	node, err := imagebuilder.ParseDockerfile(strings.NewReader(asked.Text))
	if err != nil {
		found.Error = err.Error()
		return found
	}
	found.Parsed = true
	for _, child := range node.Children {
		found.Statements = append(found.Statements, statement(child.Value, len(child.Heredocs)))
	}
	stages, err := imagebuilder.NewStages(node, imagebuilder.NewBuilder(asked.Args))
	if err != nil {
		found.Error = err.Error()
		return found
	}
	if asked.Target != "" {
		through, known := stages.ThroughTarget(asked.Target)
		if !known {
			found.Error = "no such target"
			return found
		}
		stages = through
	}
	for _, stage := range stages {
		base, err := stage.Builder.From(stage.Node)
		if err != nil {
			found.Error = err.Error()
			return found
		}
		found.Pulled = append(found.Pulled, base)
	}
	return found
}

func statement(name string, documents int) string {
	return fmt.Sprintf("%s %d", strings.ToUpper(name), documents)
}

// What makes them panic is an error like another one.
func recovered(found *verdict) {
	if cause := recover(); cause != nil {
		found.Error = fmt.Sprint(cause)
	}
}
