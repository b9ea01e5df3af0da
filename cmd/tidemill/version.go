package main

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of this command", Args: wants(0, 0, "none"),
		Example: "  tidemill version",
		RunE: func(cmd *cobra.Command, _ []string) error {
			info, ok := debug.ReadBuildInfo()
			if !ok {
				return fmt.Errorf("this command was built without version information: build it with go build or go install")
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionOf(info))
			return err
		},
	}
}

// versionOf is the module's version, its revision and that of Go.
func versionOf(info *debug.BuildInfo) string {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	words := []string{"tidemill", info.Main.Version}
	if rev := settings["vcs.revision"]; rev != "" {
		words = append(words, "revision", rev)
		if at := settings["vcs.time"]; at != "" {
			words = append(words, "of", at)
		}
		if settings["vcs.modified"] == "true" {
			words = append(words, "(modified)")
		}
	}
	return strings.Join(append(words, info.GoVersion), " ")
}
