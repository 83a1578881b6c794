// What operator-sdk does around a validator, with the library that it uses: `validate DIR TOOL` runs the real multiarch
// validator and prints as `-o json-alpha1` does; `external PROGRAM DIR` runs an external validator and decodes its
// answer strictly into the library's type. Exit codes: 1 for a complaint that is an error, 3 where nothing could be run.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	"github.com/operator-framework/api/pkg/validation/errors"
	"github.com/sirupsen/logrus"
)

type output struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

type report struct {
	Passed  bool     `json:"passed"`
	Outputs []output `json:"outputs"`
}

func main() {
	logrus.SetOutput(io.Discard)
	var results []errors.ManifestResult
	var err error
	switch {
	case len(os.Args) == 4 && os.Args[1] == "validate":
		results, err = validate(os.Args[2], os.Args[3])
	case len(os.Args) == 4 && os.Args[1] == "external":
		results, err = external(os.Args[2], os.Args[3])
	default:
		err = fmt.Errorf("usage: validate DIR TOOL, or external PROGRAM DIR")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	if !print(results) {
		os.Exit(1)
	}
}

func validate(directory, tool string) ([]errors.ManifestResult, error) {
	bundle, err := manifests.GetBundleFromDir(directory)
	if err != nil {
		return nil, err
	}
	values := map[string]string{"container-tools": tool}
	return validation.MultipleArchitecturesValidator.Validate(bundle, values), nil
}

func external(program, directory string) ([]errors.ManifestResult, error) {
	command := exec.Command(program, directory)
	command.Stderr = os.Stderr
	answer, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	var result errors.ManifestResult
	decoder := json.NewDecoder(answer)
	decoder.DisallowUnknownFields()
	undecodable := decoder.Decode(&result)
	if err := command.Wait(); err != nil {
		return nil, err
	}
	return []errors.ManifestResult{result}, undecodable
}

func print(results []errors.ManifestResult) bool {
	printed := report{Passed: true}
	for _, result := range results {
		for _, warning := range result.Warnings {
			printed.Outputs = append(printed.Outputs, output{"warning", warning.Error()})
		}
		for _, problem := range result.Errors {
			printed.Outputs = append(printed.Outputs, output{"error", problem.Error()})
			printed.Passed = false
		}
	}
	text, _ := json.MarshalIndent(printed, "", "    ")
	fmt.Println(string(text))
	return printed.Passed
}
